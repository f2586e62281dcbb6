//! TLS for connections: certificates from a folder that is laid out as nbdkit, QEMU and libnbd know
//! it, and a stream over a socket that does not block.
//!
//! X.509 only: rustls has no shared keys of its users' choice (`tls-psk`).

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

/// Why there can be no TLS.
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
            Problem::Unreadable(error) => write!(f, "this is no PEM file: {error}"),
            Problem::NothingThere(what) => f.write_str(what),
            Problem::BadKey(error) => write!(
                f,
                "this key cannot be used ({error}); it must be RSA of 2048 to 8192 bits, ECDSA on \
                 P-256 or P-384, or Ed25519. If it is one, as those of `certtool --ecc` are, \
                 `openssl pkcs8 -topk8 -nocrypt -in OLD -out NEW` writes it anew in a way that can \
                 be read"
            ),
            Problem::NotOfTheKey(error) => write!(
                f,
                "this certificate is not of the key in {SERVER_KEY} ({error}); put the key there \
                 that it was made with, or make a new certificate with this key"
            ),
            Problem::BadCertificate(error) => write!(f, "a certificate is broken ({error})"),
            Problem::BadCrl(error) => write!(f, "the list of revoked certificates: {error}"),
        }
    }
}

/// What all TLS connections of a server share, from the files of `folder`: `server-cert.pem` with
/// the certificate and those between it and the CA's, and `server-key.pem`. With `verify_peer` also
/// `ca-cert.pem`, by which a client must prove itself, and, if it is there, `ca-crl.pem`, with what
/// that CA has revoked.
///
/// TLS 1.2 and 1.3. Sessions are not resumed: NBD connections are few and long.
///
/// # Errors
/// Names the file and what is wrong with it.
fn server_config(folder: &Path, verify_peer: bool) -> Result<Arc<ServerConfig>, TlsError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let certificate_file = folder.join(SERVER_CERT);
    let chain = certificates(&certificate_file)?;
    let key_file = folder.join(SERVER_KEY);
    let key = private_key(&key_file)?;
    // By itself first: else a key that cannot be read is taken for one of another certificate.
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
        return Err(failed(Problem::NothingThere("there is no certificate in it")));
    }
    Ok(certificates)
}

fn private_key(file: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    PrivateKeyDer::from_pem_file(file).map_err(|error| TlsError {
        file: file.to_owned(),
        problem: match error {
            pem::Error::NoItemsFound => Problem::NothingThere(
                "there is no private key in it that is not encrypted; \
                 `openssl pkey -in OLD -out NEW` decrypts one",
            ),
            error => Problem::Unreadable(error),
        },
    })
}

/// The lists of revoked certificates; none, if there is no such file.
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
        // Going on without would let in whom somebody meant to keep out.
        return Err(failed(Problem::NothingThere(
            "there is no list of revoked certificates in it",
        )));
    }
    Ok(lists)
}

#[cfg(test)]
mod tests;
