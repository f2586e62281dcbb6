# Numbered records, each reported once it is durable. A later boot finds those of an earlier one.
await vda
found=$(head -c 8 /dev/vda | tr -d '\0')
report "found $found"
meet found
nr=$(echo "${found:-0}" | sed 's/^0*\(.\)/\1/')
while [ $nr -lt 100000 ]; do
    printf '%08d\n' $nr > /tmp/record
    # The first record is the number of the last one.
    dd if=/tmp/record of=/dev/vda bs=512 seek=$((nr + 1)) conv=notrunc,fsync 2> /dev/null || fail "record $nr"
    dd if=/tmp/record of=/dev/vda bs=512 conv=notrunc,fsync 2> /dev/null || fail "number $nr"
    report "record $nr"
    nr=$((nr + 1))
done
