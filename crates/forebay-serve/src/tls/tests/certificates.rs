//! Certificates, made when they are needed: those that are checked in expire.

use std::path::Path;

use rcgen::{
    BasicConstraints, Certificate, CertificateParams, CertificateRevocationListParams, DnType,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyIdMethod, KeyPair, KeyUsagePurpose,
    RevokedCertParams, SerialNumber, date_time_ymd,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use tempfile::TempDir;

pub(super) struct Authority {
    pub(super) certificate: Certificate,
    issuer: Issuer<'static, KeyPair>,
}

pub(super) struct Leaf {
    pub(super) certificate: Certificate,
    pub(super) key: KeyPair,
}

impl Leaf {
    pub(super) fn der(&self) -> (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>) {
        let key = PrivatePkcs8KeyDer::from(self.key.serialize_der());
        (vec![self.certificate.der().clone()], key.into())
    }
}

/// Who a certificate is for, and until when it holds.
pub(super) struct For {
    pub(super) purpose: ExtendedKeyUsagePurpose,
    pub(super) serial: u64,
    pub(super) last_year: i32,
}

pub(super) const SERVER: For =
    For { purpose: ExtendedKeyUsagePurpose::ServerAuth, serial: 2, last_year: 2100 };
pub(super) const CLIENT: For =
    For { purpose: ExtendedKeyUsagePurpose::ClientAuth, serial: 3, last_year: 2100 };

impl Authority {
    pub(super) fn new(name: &str) -> Authority {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        Authority { certificate, issuer: Issuer::new(params, key) }
    }

    pub(super) fn issue(&self, whom: For) -> Leaf {
        let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
        let mut params = CertificateParams::new(names).unwrap();
        params.distinguished_name.push(DnType::CommonName, "somebody");
        params.use_authority_key_identifier_extension = true;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![whom.purpose];
        params.serial_number = Some(whom.serial.into());
        params.not_before = date_time_ymd(2000, 1, 1);
        params.not_after = date_time_ymd(whom.last_year, 1, 1);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        Leaf { certificate, key }
    }

    /// A list that revokes the certificate with this number.
    pub(super) fn revoke(&self, serial: u64) -> String {
        let revoked = RevokedCertParams {
            serial_number: SerialNumber::from(serial),
            revocation_time: date_time_ymd(2001, 1, 1),
            reason_code: None,
            invalidity_date: None,
        };
        let params = CertificateRevocationListParams {
            this_update: date_time_ymd(2001, 1, 1),
            next_update: date_time_ymd(2100, 1, 1),
            crl_number: SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs: vec![revoked],
            key_identifier_method: KeyIdMethod::Sha256,
        };
        params.signed_by(&self.issuer).unwrap().pem().unwrap()
    }

    /// A folder as the server wants it, and clients of GnuTLS.
    pub(super) fn folder(&self) -> TempDir {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), "ca-cert.pem", &self.certificate.pem());
        self.write_leaf(folder.path(), "server", SERVER);
        self.write_leaf(folder.path(), "client", CLIENT);
        folder
    }

    pub(super) fn write_leaf(&self, folder: &Path, role: &str, whom: For) {
        let leaf = self.issue(whom);
        write(folder, &format!("{role}-cert.pem"), &leaf.certificate.pem());
        write(folder, &format!("{role}-key.pem"), &leaf.key.serialize_pem());
    }
}

pub(super) fn write(folder: &Path, name: &str, text: &str) {
    std::fs::write(folder.join(name), text).unwrap();
}
