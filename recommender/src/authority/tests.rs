//! Join tokens and certificates: for one use, one node, ten minutes; a name is what the token says.

use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;
use std::thread;

use rcgen::{CertificateParams, KeyPair, SanType};

use super::*;

const NOW: u64 = 1_800_000_000;

fn name(node: &str) -> Name {
    Name { cluster: "test".into(), node: node.into() }
}

/// A request that claims to be somebody, an authority even.
fn claiming(uri: &str) -> Vec<u8> {
    let mut params = CertificateParams::new(vec!["recommender.example".to_owned()]).unwrap();
    params.subject_alt_names.push(SanType::URI(uri.try_into().unwrap()));
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    params.serialize_request(&KeyPair::generate().unwrap()).unwrap().der().to_vec()
}

fn csr() -> Vec<u8> {
    claiming("spiffe://td/evenkeel/test/other")
}

fn open(dir: &Path) -> Authority {
    Authority::open(&dir.join("authority"), "td", NOW).unwrap()
}

fn why<T: std::fmt::Debug>(result: Result<T, AuthorityError>) -> String {
    result.unwrap_err().to_string()
}

#[test]
fn keys_are_ours_alone_and_the_authority_stays_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let first = open(dir.path());
    let key = dir.path().join("authority/ca.key");
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&key), mode(key.parent().unwrap())), (0o600, 0o700));
    assert_eq!(open(dir.path()).fingerprint(), first.fingerprint());
    // Somebody else's file in its place is not followed, and a lost key is not replaced silently.
    let kept = dir.path().join("kept");
    fs::rename(&key, &kept).unwrap();
    assert!(why(Authority::open(key.parent().unwrap(), "td", NOW)).contains("ca.key is gone"));
    std::os::unix::fs::symlink(&kept, &key).unwrap();
    assert!(why(Authority::open(key.parent().unwrap(), "td", NOW)).contains("symbolic link"));
}

#[test]
fn where_no_certificate_can_be_written_that_of_the_run_before_is_served() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Arc::new(open(dir.path()));
    let pair = dir.path().join("authority").join(SERVER_FILE);
    let served = || fs::read(&pair).unwrap();
    // As on a full disk, what is written beside the file cannot be.
    let full = pair.with_extension("new");
    let start = || {
        let server = Server::new(Arc::clone(&authority), &[], &[]);
        server.start(NOW).map(|()| server)
    };
    fs::create_dir(&full).unwrap();
    assert!(start().is_err(), "there is none to serve");
    fs::remove_dir(&full).unwrap();
    start().unwrap();
    let before = served();
    fs::create_dir(&full).unwrap();
    let server = start().unwrap();
    let files = evenkeel_net::tls::TlsFiles {
        cert: pair.clone(),
        key: pair.clone(),
        client_ca: Vec::new(),
        cluster_ca: None,
    };
    let tls = evenkeel_net::tls::Tls::open(files).unwrap();
    server.renew(&tls, NOW);
    assert_eq!(served(), before);
    // Another is tried until there is one, and then not before it is due.
    fs::remove_dir(&full).unwrap();
    server.renew(&tls, NOW);
    let after = served();
    assert_ne!(after, before);
    server.renew(&tls, NOW);
    assert_eq!(served(), after);
}

#[test]
fn a_nodes_certificate_holds_as_long_as_configured_and_never_above_a_day() {
    let hour = Duration::from_secs(3600);
    for (life, want) in [(hour, hour), (100 * hour, NODE_LIFE)] {
        let dir = tempfile::tempdir().unwrap();
        let authority = open(dir.path()).with_node_life(life);
        let token = authority.token(&name("n1"), NOW).unwrap().0;
        let joined = authority.join(&csr(), &token, &name("n1"), NOW).unwrap();
        let renewed = authority.renew(&csr(), &name("n1"), NOW).unwrap();
        assert_eq!(
            [joined.validity, renewed.validity],
            [Validity { not_before: NOW, not_after: NOW + want.as_secs() }; 2]
        );
        let listed = authority.register().listed(NOW);
        assert_eq!(listed["test/n1"].certificate_expires, NOW + want.as_secs());
    }
    for (life, wrong) in [("59s", true), ("1m", false), ("24h", false), ("25h", true)] {
        let section = crate::config::TlsSection { node_life: life.parse().unwrap(), ..Default::default() };
        let config = crate::config::Config { tls: section, ..Default::default() };
        assert_eq!(config.problems().iter().any(|(key, _)| *key == "tls.node_life"), wrong, "{life}");
    }
}

#[test]
fn a_certificate_has_the_name_of_the_token_and_nothing_of_the_request() {
    let dir = tempfile::tempdir().unwrap();
    let authority = open(dir.path());
    let (token, ends) = authority.token(&name("n1"), NOW).unwrap();
    assert_eq!(ends, NOW + 600);
    let given = authority.join(&csr(), &token, &name("n1"), NOW).unwrap();
    let pem = dir.path().join("n1.crt");
    fs::write(&pem, &given.certificate).unwrap();
    let der = certificates(&pem).unwrap().swap_remove(0);
    let certificate = Certificate::of(&der);
    assert_eq!(certificate.uris(), ["spiffe://td/evenkeel/test/n1"]);
    assert_eq!((certificate.begins(), certificate.expires()), (NOW, NOW + 86_400));
    let text = String::from_utf8_lossy(&der).into_owned();
    assert!(!text.contains("recommender.example") && !text.contains("other"), "nothing of the request");
    // It signs nothing: of a leaf no authority is made.
    let key = KeyPair::generate().unwrap();
    let usages = Issuer::from_ca_cert_der(&der, key).unwrap().key_usages().to_vec();
    assert_eq!(usages, [KeyUsagePurpose::DigitalSignature]);
}

#[test]
fn a_token_is_for_one_use_one_node_and_ten_minutes() {
    let dir = tempfile::tempdir().unwrap();
    let authority = open(dir.path());
    let (token, _) = authority.token(&name("n1"), NOW).unwrap();
    let kept = fs::read_to_string(dir.path().join("authority/register.json")).unwrap();
    assert!(!kept.contains(&token) && !kept.contains(token.trim_start_matches(register::PREFIX)));
    for (csr, token, claims, now, want) in [
        (csr(), token.as_str(), name("n2"), NOW, "for node test/n1, the agent says it is test/n2"),
        (csr(), &token[1..], name("n1"), NOW, "not known"),
        (csr(), "", name("n1"), NOW, "not known"),
        (csr(), &token, name("n1"), NOW + 600, "not known"),
        (b"nonsense".to_vec(), &token, name("n1"), NOW, "PKCS #10"),
        (vec![0x30; 100_000], &token, name("n1"), NOW, "100000 bytes"),
    ] {
        let said = why(authority.join(&csr, token, &claims, now));
        assert!(said.contains(want), "{want}: {said}");
    }
    // None of these used it up; somebody else's signature does not make a request.
    let mut forged = csr();
    let last = forged.len() - 1;
    forged[last] ^= 1;
    assert!(why(authority.join(&forged, &token, &name("n1"), NOW)).contains("PKCS #10"));
    authority.join(&csr(), &token, &name("n1"), NOW).unwrap();
    assert!(why(authority.join(&csr(), &token, &name("n1"), NOW)).contains("not known"));
    // Nor after a restart.
    assert!(why(open(dir.path()).join(&csr(), &token, &name("n1"), NOW)).contains("not known"));
    // A newer one takes the place of one that waits.
    let (older, _) = authority.token(&name("n1"), NOW).unwrap();
    let (newer, _) = authority.token(&name("n1"), NOW).unwrap();
    assert!(authority.join(&csr(), &older, &name("n1"), NOW).is_err());
    // One made by another process is known at once.
    let (theirs, _) = open(dir.path()).token(&name("n3"), NOW).unwrap();
    authority.join(&csr(), &theirs, &name("n3"), NOW).unwrap();
    authority.join(&csr(), &newer, &name("n1"), NOW).unwrap();
}

#[test]
fn of_many_who_come_at_once_with_a_token_one_is_served() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Arc::new(open(dir.path()));
    let (token, _) = authority.token(&name("n1"), NOW).unwrap();
    // Another opening of the same files, as another process has it.
    let callers: Vec<_> = [Arc::clone(&authority), Arc::new(open(dir.path()))]
        .into_iter()
        .flat_map(|authority| (0..8).map(move |_| Arc::clone(&authority)))
        .map(|authority| {
            let token = token.clone();
            thread::spawn(move || authority.join(&csr(), &token, &name("n1"), NOW).is_ok())
        })
        .collect();
    let served = callers.into_iter().filter(|_| true).map(|caller| caller.join().unwrap()).filter(|ok| *ok);
    assert_eq!(served.count(), 1);
}

#[test]
fn tokens_that_wait_are_bounded_and_names_are_such_as_certificates_have() {
    let dir = tempfile::tempdir().unwrap();
    let authority = open(dir.path());
    let register = dir.path().join("authority/register.json");
    let tokens: serde_json::Map<String, Value> =
        (0..1000).map(|n| (format!("test/n{n}"), json!({"sha256": "", "expires": NOW + 1}))).collect();
    fs::write(&register, json!({"version": 1, "tokens": tokens, "nodes": {}}).to_string()).unwrap();
    assert!(why(authority.token(&name("more"), NOW)).contains("1000 join tokens wait"));
    authority.token(&name("n7"), NOW).unwrap();
    authority.token(&name("more"), NOW + 1).unwrap();
    for wrong in ["", "..", "a b", "a/b", "n\u{e4}", "%2e", &"x".repeat(254)] {
        assert!(why(authority.token(&name(wrong), NOW)).contains("1 to 253"), "{wrong}");
    }
    // What cannot be read changes nothing, and is not taken for empty.
    fs::write(&register, "nonsense").unwrap();
    assert!(authority.register().look().is_err());
    assert!(authority.token(&name("n8"), NOW).is_err());
    assert!(Authority::open(register.parent().unwrap(), "td", NOW).is_err());
}

#[test]
fn a_revoked_node_is_refused_until_it_joins_anew() {
    let dir = tempfile::tempdir().unwrap();
    let authority = open(dir.path());
    let (token, _) = authority.token(&name("n1"), NOW).unwrap();
    let (register, n1) = (authority.register(), name("n1"));
    let first = authority.join(&csr(), &token, &n1, NOW).unwrap();
    assert!(!register.refuses(&n1, Some(first.validity.not_before)));
    let (waiting, _) = authority.token(&n1, NOW).unwrap();
    register.revoke(&n1, NOW).unwrap();
    assert!(register.refuses(&n1, Some(first.validity.not_before)) && register.refuses(&n1, None));
    assert!(register.refuses(&n1, Some(NOW + 1)), "nobody else's either");
    assert!(!register.refuses(&name("n2"), Some(NOW)));
    assert!(authority.join(&csr(), &waiting, &n1, NOW).is_err(), "the token that waited went with it");
    // Another process's view, which sees it when it looks.
    let other = open(dir.path());
    assert!(other.register().refuses(&n1, None));
    let (token, _) = other.token(&n1, NOW).unwrap();
    register.look().unwrap();
    assert!(register.refuses(&n1, Some(first.validity.not_before)), "what was taken away stays away");
    let second = authority.join(&csr(), &token, &n1, NOW).unwrap();
    assert!(!register.refuses(&n1, Some(second.validity.not_before)));
    let listed = authority.register().listed(NOW);
    assert_eq!((listed["test/n1"].revoked, listed["test/n1"].refused), (NOW, false));
    // Nothing is kept of it once no such certificate can be left.
    assert!(authority.register().listed(NOW + 3 * 86_400).is_empty());
}
