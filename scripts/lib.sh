# shellcheck shell=bash
# What the scripts share: messages, and the installation of what a machine lacks. Sourced, never run.
# Debian 12 or later is expected; elsewhere the tools may come from anywhere, as long as they are on the PATH.

set -euo pipefail

repository=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# Debian gives ordinary users no sbin directories, and that is where runc and modprobe are.
export PATH="$PATH:/usr/local/sbin:/usr/sbin:/sbin"

# The programs that are shipped. Whoever builds them names them, so that nothing of what tests them is in them.
shipped=(evenkeel evenkeel-agent evenkeel-recommender)

# build_shipped ARGUMENT... : builds them, as every package, image, demonstration, bench and guest gets them.
build_shipped() { cargo build --locked "${shipped[@]/#/--package=}" "${shipped[@]/#/--bin=}" "$@"; }

# build_packaged ARGUMENT... : the same for packages and images, which are to be the same wherever they are built: no path of this
# machine is in them. Flags of the environment would take the place of those named here, and a static program be none.
build_packaged() { (
    registry=${CARGO_HOME:-$HOME/.cargo}/registry/src
    target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
    unset RUSTFLAGS CARGO_ENCODED_RUSTFLAGS
    build_shipped --config "target.'cfg(unix)'.rustflags=[
        '--remap-path-prefix=$registry=registry', '--remap-path-prefix=$target=target', '--remap-path-prefix=$repository=.']" "$@"
); }

say() { printf '==> %s\n' "$*" >&2; }
warn() { printf 'warning: %s\n' "$*" >&2; }
die() {
    printf 'error: %s\n' "$*" >&2
    exit 1
}

# Debian packages that bring a tool.
packages_of() {
    case $1 in
        busybox) echo busybox-static ;;
        cc) echo gcc libc6-dev ;;
        chromedriver) echo chromium-driver ;;
        containerd | ctr) echo containerd ;;
        dockerd | docker) echo docker.io ;;
        dpkg-shlibdeps) echo dpkg-dev ;;
        go) echo golang-go ;;
        influxd) echo influxdb ;;
        man) echo man-db groff-base ;;
        modprobe | depmod) echo kmod ;;
        strip) echo binutils ;;
        systemd-analyze) echo systemd ;;
        qemu-system-x86_64) echo qemu-system-x86 seabios ;;
        *) echo "$1" ;;
    esac
}

# need_tools TOOL... : installs the packages of those that are missing, and says which.
need_tools() {
    local tool missing=() packages=()
    for tool in "$@"; do
        command -v "$tool" > /dev/null || missing+=("$tool")
    done
    [ ${#missing[@]} -gt 0 ] || return 0
    # Several tools may come from one package.
    mapfile -t packages < <(for tool in "${missing[@]}"; do packages_of "$tool" | tr ' ' '\n'; done | sort -u)
    install_packages "${missing[*]}" "${packages[@]}"
}

# install_packages WHAT PACKAGE... : installs packages because WHAT is missing.
install_packages() {
    local what=$1
    shift
    command -v apt-get > /dev/null || die "missing here: $what; there is no apt-get to install it with, so install it by hand"
    [ "$(id -u)" = 0 ] || die "missing here: $what; as root, run: apt-get install $*"
    say "missing here: $what; installing with apt-get: $*"
    export DEBIAN_FRONTEND=noninteractive
    # The index may be missing or too old; it is fetched only when the first attempt fails.
    local apt=(apt-get -qq install -y --no-install-recommends "$@")
    "${apt[@]}" > /dev/null 2>&1 || { apt-get -qq update && "${apt[@]}" > /dev/null; } ||
        die "apt-get could not install: $*"
}

# need_rust : cargo and a linker; Debian's own Rust is too old, and toolchains are not ours to install.
need_rust() {
    command -v cargo > /dev/null || PATH="$PATH:${CARGO_HOME:-$HOME/.cargo}/bin"
    command -v cargo > /dev/null ||
        die "cargo is missing: install Rust $(rust_version) or later, see https://rustup.rs (rustup toolchain install stable)"
    need_tools cc
    [ -e /usr/include/stdio.h ] || install_packages "the C library's headers" libc6-dev
    [ -e /etc/ssl/certs/ca-certificates.crt ] || install_packages "certificate authorities, for crates.io" ca-certificates
}

rust_version() { sed -n 's/^rust-version = "\(.*\)"/\1/p' "$repository/Cargo.toml"; }

# Tools for real containers, and for guests with a kernel of their own.
need_containers() { need_tools containerd ctr runc busybox tar; }
need_engines_of_containers() { need_tools dockerd docker podman; }
need_guests() { need_tools qemu-system-x86_64 busybox modprobe depmod apt-get dpkg; }
# A Python with gRPC's C core and Kubernetes' client, to ask as clients of other languages do: an environment below target, so that
# nothing of the machine changes.
need_python() {
    local at
    at=$(cargo metadata --format-version 1 --no-deps | sed 's/.*"target_directory":"\([^"]*\)".*/\1/')/fixtures/python
    ! "$at/bin/python" -c 'import grpc, grpc_reflection, kubernetes' 2> /dev/null || return 0
    need_tools python3
    python3 -c 'import ensurepip' 2> /dev/null || install_packages "Python's venv" python3-venv
    say "installing Python's grpcio and kubernetes from PyPI in $at"
    python3 -m venv "$at" && "$at/bin/pip" -q --disable-pip-version-check install grpcio grpcio-reflection kubernetes ||
        warn "no Python with gRPC and Kubernetes' client: their tests are skipped, each with a line that says so"
}
# The Python client, installed by pip out of this tree, in an environment below target.
need_client() {
    local at
    at=$(cargo metadata --format-version 1 --no-deps | sed 's/.*"target_directory":"\([^"]*\)".*/\1/')/fixtures/client
    need_tools python3
    python3 -c 'import ensurepip' 2> /dev/null || install_packages "Python's venv" python3-venv
    say "installing clients/python in $at"
    # Each time, since the tree may have changed; what it needs is kept.
    { [ -x "$at/bin/pip" ] || python3 -m venv "$at"; } &&
        "$at/bin/pip" -q --disable-pip-version-check install "$repository/clients/python[pandas]" ||
        warn "the Python client cannot be installed: its tests are skipped, each with a line that says so"
}
# Below cargo's target directory, so that nothing of the machine changes.
fixtures() { cargo metadata --format-version 1 --no-deps | sed 's/.*"target_directory":"\([^"]*\)".*/\1\/fixtures/'; }
# Helm's own code, which renders the chart: a shared library in a wheel of PyPI that is unpacked and not installed, since it is made for
# another Python.
need_helm() {
    local at
    at=$(fixtures)/helm
    [ ! -e "$at/libhelm.so" ] || return 0
    need_tools python3
    python3 -m pip --version > /dev/null 2>&1 || install_packages "pip" python3-pip
    say "fetching Helm's library from PyPI (helm-sdkpy) to $at"
    mkdir -p "$at/wheel"
    python3 -m pip -q --disable-pip-version-check download --no-deps --python-version 3.12 --only-binary=:all: \
        --dest "$at/wheel" helm-sdkpy==0.1.32 &&
        python3 -m zipfile -e "$at"/wheel/*.whl "$at/wheel/tree" &&
        mv "$at/wheel/tree/helm_sdkpy/_lib/linux-$(machine)/libhelm_sdkpy.so" "$at/libhelm.so" &&
        rm -r "$at/wheel" ||
        warn "no Helm: tests of the chart are skipped, each with a line that says so"
}
# The machine's name as Go and Debian have it.
machine() { case $(uname -m) in x86_64) echo amd64 ;; aarch64) echo arm64 ;; *) uname -m ;; esac }
# A Go with gRPC, for the same.
need_go() {
    need_tools go
    [ -e /usr/share/gocode/src/google.golang.org/grpc ] || install_packages "Go's gRPC" golang-google-grpc-dev
}
# Engines that keep the history outside, and what makes a certificate for one.
need_engines() { need_tools prometheus victoria-metrics influxd openssl; }
# A browser and its driver, and axe-core, which looks for barriers in pages: below target, so that nothing of the machine changes.
need_browser() {
    local at
    need_tools chromium chromedriver
    at=$(cargo metadata --format-version 1 --no-deps | sed 's/.*"target_directory":"\([^"]*\)".*/\1/')/fixtures/browser
    [ ! -e "$at/node_modules/axe-core/axe.min.js" ] || return 0
    need_tools npm
    say "installing axe-core from npm in $at"
    mkdir -p "$at" && npm install --silent --no-audit --no-fund --no-save --prefix "$at" axe-core@4 ||
        warn "no axe-core: pages are not searched for barriers"
}
