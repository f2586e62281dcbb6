//! TLS for connections: certificates from a directory with the file names of nbdkit, QEMU and
//! libnbd, and a stream over a non-blocking socket.
//!
//! X.509 only: rustls has no pre-shared keys (`tls-psk`).
//!
//! RSA keys: the server signs, and ring signs only with 2048, 3072 and 4096 bits. It verifies
//! clients' keys from 2048 to 8192 bits.

mod current;
mod stream;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::server::{NoServerSessionStorage, VerifierBuilderError, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig};
use rustls_pki_types::pem::{self, PemObject};
use rustls_pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};

pub(crate) use current::Tls;
pub(crate) use stream::TlsStream;

const CA_CERT: &str = "ca-cert.pem";
const CA_CRL: &str = "ca-crl.pem";
const SERVER_CERT: &str = "server-cert.pem";
const SERVER_KEY: &str = "server-key.pem";

/// Error of setting up TLS. Its message names the file, the problem and the remedy.
#[derive(Debug, thiserror::Error)]
#[error("cannot set up TLS: {}: {problem}", .file.display())]
pub struct TlsError {
    file: PathBuf,
    problem: Problem,
}

#[derive(Debug)]
enum Problem {
    Unreadable(pem::Error),
    NothingThere(&'static str),
    BadKey(rustls::Error),
    NotOfTheKey(rustls::Error),
    BadCertificate(rustls::Error),
    BadCrl(String),
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Problem::Unreadable(pem::Error::Io(error)) => write!(f, "{error}"),
            Problem::Unreadable(error) => write!(f, "not a PEM file: {error}"),
            Problem::NothingThere(what) => f.write_str(what),
            Problem::BadKey(error) => write!(
                f,
                "cannot use this key ({error}): the server needs RSA of 2048, 3072 or 4096 bits, \
                 ECDSA on P-256 or P-384, or Ed25519; `openssl pkey -in KEY -noout -text` shows \
                 the type and the size. If they are right, the format of the file is not, as with \
                 `certtool --ecc`: convert it with `openssl pkcs8 -topk8 -nocrypt -in OLD -out NEW`"
            ),
            Problem::NotOfTheKey(error) => write!(
                f,
                "this certificate does not match the key in {SERVER_KEY} ({error}): use the key \
                 that the certificate was made with, or make a new certificate with this key"
            ),
            Problem::BadCertificate(error) => write!(f, "cannot use this certificate ({error})"),
            Problem::BadCrl(error) => write!(f, "cannot use this revocation list: {error}"),
        }
    }
}

/// Returns the configuration that all TLS connections of a server share, from the files in
/// `folder`: `server-cert.pem` with the certificate and the intermediate ones, and
/// `server-key.pem`. With `verify_peer` also `ca-cert.pem`, which must have signed the certificate
/// of a client, and, if it exists, `ca-crl.pem` with the certificates that this CA has revoked.
///
/// TLS 1.2 and 1.3. Sessions are not resumed: NBD connections are few and long.
///
/// # Errors
/// Names the file and the problem.
fn server_config(folder: &Path, verify_peer: bool) -> Result<Arc<ServerConfig>, TlsError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let certificate_file = folder.join(SERVER_CERT);
    let chain = certificates(&certificate_file)?;
    let key_file = folder.join(SERVER_KEY);
    let key = private_key(&key_file)?;
    // The key alone first: else an unreadable key is reported as one of another certificate.
    provider
        .key_provider
        .load_private_key(key.clone_key())
        .map_err(|error| TlsError { file: key_file, problem: Problem::BadKey(error) })?;
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .expect("the provider has suites of both versions");
    let builder = if verify_peer {
        builder.with_client_cert_verifier(client_verifier(folder, provider)?)
    } else {
        builder.with_no_client_auth()
    };
    let mut config = builder.with_single_cert(chain, key).map_err(|error| TlsError {
        file: certificate_file,
        problem: match error {
            error @ rustls::Error::InvalidCertificate(_) => Problem::BadCertificate(error),
            error => Problem::NotOfTheKey(error),
        },
    })?;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}

fn client_verifier(
    folder: &Path,
    provider: Arc<rustls::crypto::CryptoProvider>,
) -> Result<Arc<dyn rustls::server::danger::ClientCertVerifier>, TlsError> {
    let file = folder.join(CA_CERT);
    let mut roots = RootCertStore::empty();
    for certificate in certificates(&file)? {
        roots.add(certificate).map_err(|error| TlsError {
            file: file.clone(),
            problem: Problem::BadCertificate(error),
        })?;
    }
    let crl_file = folder.join(CA_CRL);
    let revoked = revocations(&crl_file)?;
    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
        .with_crls(revoked)
        .build()
        .map_err(|error| match error {
            VerifierBuilderError::InvalidCrl(error) => {
                TlsError { file: crl_file, problem: Problem::BadCrl(format!("{error:?}")) }
            }
            error => TlsError { file, problem: Problem::BadCrl(error.to_string()) },
        })
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let failed = |problem| TlsError { file: file.to_owned(), problem };
    let unreadable = |error| failed(Problem::Unreadable(error));
    let certificates = CertificateDer::pem_file_iter(file).map_err(unreadable)?;
    let certificates = certificates.collect::<Result<Vec<_>, _>>().map_err(unreadable)?;
    if certificates.is_empty() {
        return Err(failed(Problem::NothingThere("no certificate in this file")));
    }
    Ok(certificates)
}

fn private_key(file: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    PrivateKeyDer::from_pem_file(file).map_err(|error| TlsError {
        file: file.to_owned(),
        problem: match error {
            pem::Error::NoItemsFound => Problem::NothingThere(
                "no unencrypted private key in this file; to decrypt one: `openssl pkey -in OLD \
                 -out NEW`",
            ),
            error => Problem::Unreadable(error),
        },
    })
}

/// Returns the lists of revoked certificates; none if the file does not exist.
fn revocations(file: &Path) -> Result<Vec<CertificateRevocationListDer<'static>>, TlsError> {
    let failed = |problem| TlsError { file: file.to_owned(), problem };
    let lists = match CertificateRevocationListDer::pem_file_iter(file) {
        Ok(lists) => lists.collect::<Result<Vec<_>, _>>(),
        Err(pem::Error::Io(error)) if error.kind() == std::io::ErrorKind::NotFound => {
            return Ok(Vec::new());
        }
        Err(error) => Err(error),
    };
    let lists = lists.map_err(|error| failed(Problem::Unreadable(error)))?;
    if lists.is_empty() {
        // To go on without a list would admit clients whose certificates were revoked.
        return Err(failed(Problem::NothingThere("no revocation list (X509 CRL) in this file")));
    }
    Ok(lists)
}

#[cfg(test)]
mod tests;
