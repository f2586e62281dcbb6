//! Dependencies of a Debian package: the installed packages that its field `Depends` requires,
//! directly or through others.

use crate::command::Line;

/// An installed package, as dpkg lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Installed {
    /// The name without an architecture.
    name: String,
    /// The name that dpkg's commands take and its lists of files have, such as `libc6:amd64`.
    full_name: String,
    /// Names of virtual packages.
    provides: Vec<String>,
    /// `Pre-Depends` and `Depends`.
    depends: String,
}

impl Installed {
    pub(super) fn full_name(&self) -> &str {
        &self.full_name
    }
}

/// Returns the packages of this machine that are installed for an architecture or for all.
pub(super) fn installed(arch: &str) -> Result<Vec<Installed>, String> {
    // No field contains a tab.
    let format = "${db:Status-Status}\\t${Architecture}\\t${Package}\\t${binary:Package}\\t\
                  ${Provides}\\t${Pre-Depends}, ${Depends}\\n";
    let list = Line::new("dpkg-query", "--show").argument(format!("--showformat={format}"));
    Ok(parse(&list.output()?, arch))
}

fn parse(list: &str, arch: &str) -> Vec<Installed> {
    let one = |line: &str| match line.split('\t').collect::<Vec<_>>()[..] {
        ["installed", of, name, full_name, provides, depends] if of == arch || of == "all" => {
            let provides = provides.split(',').map(|it| name_of(it).to_owned()).collect();
            let [name, full_name, depends] = [name, full_name, depends].map(str::to_owned);
            Some(Installed { name, full_name, provides, depends })
        }
        _ => None,
    };
    list.lines().filter_map(one).collect()
}

/// Returns the packages that `depends`, the field of `package`, requires. Each one is listed once.
/// The caller's dpkg compares the versions.
pub(super) fn closure<'a>(
    package: &str,
    depends: &str,
    installed: &'a [Installed],
) -> Result<Vec<&'a Installed>, String> {
    let mut found: Vec<&Installed> = Vec::new();
    let mut next = 0;
    let (mut package, mut depends) = (package, depends);
    loop {
        for dependency in depends.split(',').map(str::trim).filter(|it| !it.is_empty()) {
            let it = dependency.split('|').find_map(|it| provider(name_of(it), installed));
            let it = it.ok_or_else(|| {
                format!(
                    "{package} depends on `{dependency}`, which is not installed on this machine: \
                     install it, or correct the field Depends"
                )
            })?;
            if !found.contains(&it) {
                found.push(it);
            }
        }
        let Some(it) = found.get(next) else { return Ok(found) };
        (package, depends) = (&it.name, &it.depends);
        next += 1;
    }
}

/// Returns the package with this name, or one that provides it.
fn provider<'a>(name: &str, installed: &'a [Installed]) -> Option<&'a Installed> {
    let provides = |it: &&Installed| it.provides.iter().any(|provided| provided == name);
    let named = installed.iter().find(|it| it.name == name);
    named.or_else(|| installed.iter().find(provides))
}

/// Returns the name in a relation such as `libc6:any (>= 2.34)`.
fn name_of(relation: &str) -> &str {
    relation.trim().split([' ', '(', ':']).next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::{Installed, closure, parse};

    fn machine() -> Vec<Installed> {
        parse(
            "installed\tamd64\tlibc6\tlibc6:amd64\t\t, libgcc-s1\n\
             installed\tamd64\tlibgcc-s1\tlibgcc-s1:amd64\tlibgcc1 (= 1:12), lib4\t\
             base (= 12), libc6 (>= 2.35)\n\
             installed\tall\tbase\tbase\t\t, \n\
             installed\ti386\tlibz\tlibz:i386\t\t, \n\
             config-files\tamd64\tliby\tliby:amd64\t\t, \n\
             installed\tamd64\tlibx\tlibx:amd64\t\tliby | libz, libc6\n",
            "amd64",
        )
    }

    fn names(depends: &str) -> Result<Vec<String>, String> {
        let machine = machine();
        let found = closure("forebay", depends, &machine)?;
        Ok(found.iter().map(|it| it.full_name().to_owned()).collect())
    }

    #[test]
    fn dependencies_of_dependencies_are_found_once() {
        let all = ["libc6:amd64", "libgcc-s1:amd64", "base"];
        assert_eq!(names("libc6 (>= 2.34)").unwrap(), all);
        assert_eq!(names("libc6:any (>= 2.34), libgcc-s1 (>= 4.2)").unwrap(), all);
        assert!(names("").unwrap().is_empty());
    }

    #[test]
    fn alternatives_and_virtual_packages_are_found() {
        assert_eq!(names("none (>= 1) | base").unwrap(), ["base"]);
        assert_eq!(names("libgcc1").unwrap()[0], "libgcc-s1:amd64");
        assert_eq!(names("lib4 (= 3)").unwrap()[0], "libgcc-s1:amd64");
    }

    #[test]
    fn a_missing_dependency_is_named_with_the_package_that_needs_it() {
        let error = names("base, none (>= 1) | other").unwrap_err();
        assert!(error.starts_with("forebay depends on `none (>= 1) | other`, "), "{error}");
        // Removed, or installed for another architecture.
        let error = names("libx").unwrap_err();
        assert!(error.starts_with("libx depends on `liby | libz`, "), "{error}");
    }
}
