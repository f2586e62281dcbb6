//! TLS configuration: trusted authorities, and the client's certificate.

use forebay_nbd::uri::{Address, TlsKind, Uri};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{
    CertificateError, ClientConfig, ClientConnection, DigitallySignedStruct, Error, RootCertStore,
    SignatureScheme,
};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

/// The system's list of trusted authorities: Debian and others, Red Hat, Alpine and BSD.
const OF_THE_SYSTEM: [&str; 3] =
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"];

const CA_CERT: &str = "ca-cert.pem";
const CLIENT_CERT: &str = "client-cert.pem";
const CLIENT_KEY: &str = "client-key.pem";

/// The configuration of sessions with one server. It is read once, because the process may no
/// longer be permitted to open the files when it makes the next connection.
#[derive(Debug)]
pub(in crate::driver::nbd) struct Credentials {
    config: Arc<ClientConfig>,
    /// The name that the server's certificate must have.
    name: ServerName<'static>,
}

impl Credentials {
    /// Reads the configuration.
    ///
    /// # Errors
    /// Returns what is wrong with the certificates or with the options of the URI.
    pub(in crate::driver::nbd) fn of(uri: &Uri) -> Result<Credentials, String> {
        let config = config(uri)?;
        let host = match (&uri.options.hostname, &uri.address) {
            (Some(name), _) => name.clone(),
            (None, Address::Tcp { host, .. }) => host.clone(),
            // A Unix socket belongs to this machine.
            (None, Address::Unix(_)) => String::from("localhost"),
        };
        let name = ServerName::try_from(host.clone()).map_err(|_| {
            format!("`{host}` is not a valid name in a certificate; set tls-hostname=NAME")
        })?;
        Ok(Credentials { config: Arc::new(config), name })
    }

    /// Creates a session that has not begun.
    pub(super) fn session(&self) -> Result<ClientConnection, String> {
        ClientConnection::new(Arc::clone(&self.config), self.name.clone())
            .map_err(|error| format!("TLS: {error}"))
    }
}

fn config(uri: &Uri) -> Result<ClientConfig, String> {
    match uri.options.kind {
        None | Some(TlsKind::X509) => {}
        Some(kind) => {
            return Err(format!("tls-type={} is not supported: use x509", kind.name()));
        }
    }
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| format!("TLS: {error}"))?;
    let folder = uri.options.certificates.as_deref().map(|path| Path::new(OsStr::from_bytes(path)));
    let builder = match uri.options.verify_peer {
        Some(false) => {
            let anybody = Arc::new(Anybody(provider));
            builder.dangerous().with_custom_certificate_verifier(anybody)
        }
        _ => builder.with_root_certificates(trusted(folder)?),
    };
    let own = folder.filter(|folder| folder.join(CLIENT_CERT).exists());
    Ok(match own {
        None => builder.with_no_client_auth(),
        Some(folder) => {
            let (file, key_file) = (folder.join(CLIENT_CERT), folder.join(CLIENT_KEY));
            let key =
                PrivateKeyDer::from_pem_file(&key_file).map_err(|error| bad(&key_file, &error))?;
            let chain = certificates(&file)?;
            builder.with_client_auth_cert(chain, key).map_err(|error| {
                format!("{}: it cannot be used with {CLIENT_KEY} ({error})", file.display())
            })?
        }
    })
}

/// Returns the reason why a session failed.
pub(super) fn refused(error: &Error) -> String {
    let hint = match error {
        Error::InvalidCertificate(CertificateError::UnknownIssuer) => {
            "; tls-certificates=DIR names the folder with the ca-cert.pem to trust"
        }
        Error::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        ) => "; set tls-hostname=NAME to the name to expect",
        Error::AlertReceived(_) => "; it may want a certificate of ours: client-cert.pem",
        _ => "",
    };
    format!("TLS: {error}{hint}")
}

fn trusted(folder: Option<&Path>) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    if let Some(folder) = folder {
        let file = folder.join(CA_CERT);
        for certificate in certificates(&file)? {
            roots.add(certificate).map_err(|error| format!("{}: {error}", file.display()))?;
        }
        return Ok(roots);
    }
    let there = OF_THE_SYSTEM.into_iter().map(Path::new).find(|file| file.exists());
    let Some(file) = there else {
        return Err(String::from(
            "TLS: whom this system trusts is not known here: tls-certificates=DIR names a folder \
             with ca-cert.pem",
        ));
    };
    // Some old certificates cannot be parsed; the others do not depend on them.
    roots.add_parsable_certificates(certificates(file)?);
    Ok(roots)
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let all = CertificateDer::pem_file_iter(file).map_err(|error| bad(file, &error))?;
    let all = all.collect::<Result<Vec<_>, _>>().map_err(|error| bad(file, &error))?;
    match all.is_empty() {
        true => Err(format!("{}: the file has no certificate", file.display())),
        false => Ok(all),
    }
}

fn bad(file: &Path, error: &pem::Error) -> String {
    match error {
        pem::Error::Io(error) => format!("{}: {error}", file.display()),
        _ => format!("{}: not a PEM file of the expected kind: {error}", file.display()),
    }
}

/// Accepts any certificate, but the server must have its key: `tls-verify-peer=false`.
#[derive(Debug)]
struct Anybody(Arc<CryptoProvider>);

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
