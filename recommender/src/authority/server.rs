//! The certificate that the authority gives to its own program: for which names, and when a new one is made.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context as _;
use evenkeel_net::tls::Tls;
use nix::ifaddrs::getifaddrs;
use nix::unistd::gethostname;

use super::Authority;

/// Names and addresses by which clients reach the program.
#[derive(Debug)]
pub(crate) struct Server {
    authority: Arc<Authority>,
    hosts: Vec<String>,
    addresses: Vec<IpAddr>,
    /// The certificate of the run before is served, since none could be made at the start.
    is_of_before: AtomicBool,
}

impl Server {
    /// Of a program with these configured names and addresses that it listens at.
    pub(crate) fn new(authority: Arc<Authority>, hosts: &[String], at: &[SocketAddr]) -> Self {
        let mut hosts = hosts.to_vec();
        hosts.extend(["localhost".to_owned()]);
        hosts.extend(gethostname().ok().and_then(|name| name.into_string().ok()));
        let mut addresses: Vec<IpAddr> = at.iter().map(SocketAddr::ip).collect();
        // Every address of the machine where it listens at all of them.
        if addresses.iter().any(IpAddr::is_unspecified) {
            addresses.extend(of_the_machine());
        }
        addresses.retain(|address| !address.is_unspecified());
        hosts.sort();
        hosts.dedup();
        addresses.sort();
        addresses.dedup();
        Self { authority, hosts, addresses, is_of_before: AtomicBool::new(false) }
    }

    /// Makes the certificate of this run. Where it cannot be written, as on a full disk, that of the run before is served on, and another is
    /// tried at each look.
    ///
    /// # Errors
    /// When it cannot be made or written, and there is none of the run before.
    pub(crate) fn start(&self, now: u64) -> anyhow::Result<()> {
        let Err(error) = self.make(now) else { return Ok(()) };
        if !self.authority.has_served() {
            return Err(error);
        }
        tracing::warn!(
            error = format!("{error:#}"),
            "the certificate of the run before is served; a new one is tried again"
        );
        self.is_of_before.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Makes a certificate for them.
    ///
    /// # Errors
    /// When it cannot be made or written.
    fn make(&self, now: u64) -> anyhow::Result<()> {
        let made = self.authority.serve(&self.hosts, &self.addresses, now);
        made.context("no certificate can be made for this program (serve.hosts)")
    }

    /// Makes a new one where that in force is of the run before, or has had two thirds of its life.
    pub(crate) fn renew(&self, tls: &Tls, now: u64) {
        if !self.is_of_before.load(Ordering::Relaxed) && !Authority::is_due(tls.expires(), now) {
            return;
        }
        match self.make(now) {
            Ok(()) => self.is_of_before.store(false, Ordering::Relaxed),
            Err(error) => tracing::warn!(
                error = format!("{error:#}"),
                "the served certificate was not renewed; it is tried again"
            ),
        }
    }
}

/// The addresses of this machine's interfaces; none where the kernel does not tell.
fn of_the_machine() -> Vec<IpAddr> {
    let Ok(all) = getifaddrs() else { return Vec::new() };
    let address = |storage: nix::sys::socket::SockaddrStorage| {
        let four = storage.as_sockaddr_in().map(|four| IpAddr::V4(four.ip()));
        four.or_else(|| storage.as_sockaddr_in6().map(|six| IpAddr::V6(six.ip())))
    };
    all.filter_map(|interface| interface.address.and_then(address)).collect()
}
