//! Metrics of the owners of I/O: exports that have, or had, a limit, and their clients.

use std::fmt;

use forebay_insight::families::Families;
use forebay_insight::owner_metrics::{self, OwnerRow};

use super::registry::CountedExport;
use crate::clients::{LISTED_CLIENTS_MAX, is_client};

/// Writes the metrics of all owners of all disks. Disks without owners have none. Owners of clients
/// are part of that of their export, and shown by connection.
pub(super) fn encode(families: &mut Families<'_>, exports: &[CountedExport]) -> fmt::Result {
    let mut rows = Vec::new();
    for export in exports {
        for owner in export.disk.owners().into_iter().filter(|owner| !is_client(owner)) {
            let mut tenants = exports.iter().map(|export| &export.tenant);
            let tenant = tenants.find(|tenant| tenant.owner() == Some(&owner));
            rows.push(OwnerRow {
                device: export.name.clone(),
                owner: owner.name().to_owned(),
                limits: owner.limits(),
                stats: tenant.map_or_else(|| owner.stats(), |tenant| tenant.stats()),
            });
        }
    }
    owner_metrics::encode(families, &rows)?;
    let mut clients = Vec::new();
    for export in exports {
        let (listed, _) = export.tenant.clients(LISTED_CLIENTS_MAX);
        clients.extend(listed.into_iter().filter_map(|client| {
            let labels = [("connection", client.id.to_string()), ("device", export.name.clone())];
            Some((labels, client.stats?))
        }));
    }
    owner_metrics::encode_connections(families, &clients)
}
