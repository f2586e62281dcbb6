//! XXH32, the checksum of `verify=xxhash`.
//!
//! Source: the specification of xxHash by Yann Collet ("xxHash fast digest algorithm", 0.1.1).

const PRIMES: [u32; 5] = [2_654_435_761, 2_246_822_519, 3_266_489_917, 668_265_263, 374_761_393];

/// Returns the XXH32 of `data`.
pub(super) fn xxh32(data: &[u8], seed: u32) -> u32 {
    let word = |bytes: &[u8]| u32::from_le_bytes(std::array::from_fn(|at| bytes[at]));
    let round = |lane: u32, input: u32| {
        lane.wrapping_add(input.wrapping_mul(PRIMES[1])).rotate_left(13).wrapping_mul(PRIMES[0])
    };
    let stripes = data.chunks_exact(16);
    let rest = stripes.remainder();
    let mut hash = if data.len() < 16 {
        seed.wrapping_add(PRIMES[4])
    } else {
        let starts =
            [PRIMES[0].wrapping_add(PRIMES[1]), PRIMES[1], 0, 0_u32.wrapping_sub(PRIMES[0])];
        let mut lanes = starts.map(|start| seed.wrapping_add(start));
        for stripe in stripes {
            for (lane, input) in lanes.iter_mut().zip(stripe.chunks_exact(4)) {
                *lane = round(*lane, word(input));
            }
        }
        let turned = lanes.iter().zip([1, 7, 12, 18]).map(|(lane, by)| lane.rotate_left(by));
        turned.fold(0, u32::wrapping_add)
    };
    hash = hash.wrapping_add(data.len() as u32);
    let words = rest.chunks_exact(4);
    let bytes = words.remainder();
    for input in words {
        hash = hash.wrapping_add(word(input).wrapping_mul(PRIMES[2]));
        hash = hash.rotate_left(17).wrapping_mul(PRIMES[3]);
    }
    for &byte in bytes {
        hash = hash.wrapping_add(u32::from(byte).wrapping_mul(PRIMES[4]));
        hash = hash.rotate_left(11).wrapping_mul(PRIMES[0]);
    }
    hash = (hash ^ hash >> 15).wrapping_mul(PRIMES[1]);
    hash = (hash ^ hash >> 13).wrapping_mul(PRIMES[2]);
    hash ^ hash >> 16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_sums() {
        for (text, sum) in [
            ("", 0x02cc_5d05),
            ("a", 0x550d_7456),
            ("abc", 0x32d1_53ff),
            ("abcdefghijklmnopqrstuvwxyz", 0x63a1_4d5f),
        ] {
            assert_eq!(xxh32(text.as_bytes(), 0), sum, "{text}");
        }
    }
}
