say() { echo "$DPKG_MAINTSCRIPT_PACKAGE: $*" >&2; }

# by_hand PROGRAM UNIT... : what of an installation made by hand is there, and what becomes of it.
by_hand() {
    program=$1
    shift
    if [ -e "/usr/bin/$program" ] && ! dpkg-query -S "/usr/bin/$program" > /dev/null 2>&1; then
        say "an installation made by hand is there: /usr/bin/$program is replaced by the package's"
    fi
    if [ -e "/usr/local/bin/$program" ]; then
        say "an installation made by hand is there: /usr/local/bin/$program goes before the package's on the PATH; remove it"
    fi
    for unit in "$@"; do
        if [ -f "/etc/systemd/system/$unit" ] && [ ! -L "/etc/systemd/system/$unit" ]; then
            say "an installation made by hand is there: /etc/systemd/system/$unit goes before the package's unit;" \
                "to use that one: rm /etc/systemd/system/$unit && systemctl daemon-reload"
        fi
    done
    state=/var/lib/evenkeel/${program#evenkeel-}
    if [ -e "$state" ]; then
        say "state of an earlier installation is kept and used: $state"
    fi
}
