//! The device of a simulation: a name with constants, or the model file of `forebay calibrate`.

use forebay::Spec;
use forebay_sim::DeviceSpec;

/// Returns the device. `hdd` is a name, `./hdd` and `my.model` are files.
///
/// # Errors
/// The name or a constant is wrong, the file cannot be read or is wrong, or the text is the spec of
/// a disk that is not modelled.
pub(super) fn parse(text: &str) -> Result<DeviceSpec, String> {
    if let Ok(spec) = Spec::parse(text)
        && !["file", "model"].contains(&spec.driver())
    {
        let names: Vec<_> = DeviceSpec::names().collect();
        return Err(format!(
            "a disk of the driver `{}` is not simulated; expected one of {}, or a model file",
            spec.driver(),
            names.join(", ")
        ));
    }
    let read = match DeviceSpec::is_model_file(text) {
        true => Some(std::fs::read_to_string(text)),
        false => None,
    };
    let has_constants =
        || text.rsplit_once(':').is_some_and(|(file, _)| DeviceSpec::is_model_file(file));
    let content = match read {
        Some(Ok(content)) => content,
        Some(Err(_)) | None if has_constants() => {
            return Err("constants are in the model file; none may follow its name: use --set \
                        KEY=VALUE to override one"
                .to_owned());
        }
        Some(Err(error)) => {
            return Err(format!("cannot read the model file: {error}; check its path"));
        }
        None => return text.parse(),
    };
    DeviceSpec::from_model_file(&content).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_a_model_file_and_other_words_are_names() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("hdd");
        std::fs::write(&path, "family=nvme\nlatency_ns=7\n").expect("a file");
        let path = path.display().to_string();
        assert_eq!(parse(&path), "nvme:latency_ns=7".parse());
        assert_eq!(parse("hdd"), "hdd".parse());
        for spec in ["vhost-user:/run/s.sock", "vhost-user:s", "nbd://host/x", "rbd:a/b", "ram:1M"]
        {
            let refused = parse(spec).expect_err(spec);
            let driver = spec.split(':').next().expect("a driver");
            let expected =
                format!("a disk of the driver `{driver}` is not simulated; expected one");
            assert!(refused.starts_with(&expected), "{refused}");
        }
        let missing = parse("none.model").expect_err("no such file");
        assert!(missing.starts_with("cannot read the model file: No such file"), "{missing}");
        for name in [format!("{path}:latency_ns=8"), "my.model:latency_ns=8,size=2g".to_owned()] {
            let constants = parse(&name).expect_err(&name);
            assert!(constants.starts_with("constants are in the model file; none"), "{constants}");
        }
        std::fs::write(&path, "family=nvme\n\nseek_ns=7\n").expect("a file");
        let wrong = parse(&path).expect_err("hdd's constant");
        assert!(wrong.starts_with("line 3: unknown constant seek_ns; nvme has size"), "{wrong}");
    }
}
