# Runs in a guest with systemd and dpkg, which has the packages in /usr/src/packages/earlier and /usr/src/packages/later and the state of
# the first release in /usr/src/captured. Prints a line for each step; fails at the first thing that is not as it should be.
set -eu
export PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive
unset EVENKEEL_CASE || true

# The shell has a dpkg of its own.
dpkg() { /usr/bin/dpkg "$@"; }
step() { echo "step: $* ($(cut -d' ' -f1 /proc/uptime) s)"; }
fail() {
    echo "FAILED: $*"
    journalctl --no-pager -n 40 -u evenkeel-agent -u evenkeel-recommender || true
    exit 1
}
# Everything a package could leave: files with their kind and rights, users, groups, enabled units, a service's settings.
listing() {
    find /etc /usr /var /run /root -xdev \
        -path /var/log -prune -o -path /run/systemd -prune -o -path /run/log -prune -o -path /var/lib/dpkg -prune -o \
        -path /var/lib/systemd -prune -o -path /var/tmp -prune -o -path /run/credentials -prune -o \
        -path /etc/passwd- -o -path /etc/group- -o -path '/etc/*shadow*' -o -path /etc/subuid- -o -path /etc/subgid- -o \
        -exec stat -c '%n %F %a %U:%G' '{}' '+' | sort
    cat /etc/passwd /etc/group
    dpkg-query -W -f '${Package} ${db:Status-Status}\n' | sort
    systemctl show -p CPUWeight,CPUQuotaPerSecUSec,MemoryMin,MemoryLow,MemoryMax shop
    cat "/proc/$(systemctl show --value -p MainPID shop)/oom_score_adj"
}
# Until a command succeeds; a minute at most.
until_true() {
    what=$1
    shift
    tries=0
    until "$@" > /tmp/tried 2>&1; do
        tries=$((tries + 1))
        [ $tries -lt 120 ] || { cat /tmp/tried; fail "$what"; }
        sleep 0.5
    done
}
said() { grep -q "$1" /tmp/said || { cat /tmp/said; fail "it was not said: $1"; }; }
install_all() { dpkg "$@" > /tmp/said 2>&1 || { cat /tmp/said; fail "dpkg $*"; }; }
score_of_shop() { cat "/proc/$(systemctl show --value -p MainPID shop)/oom_score_adj"; }
shop_is_governed() { [ "$(score_of_shop)" = -999 ]; }
node_is_known() { evenkeel nodes -o json > /tmp/nodes && grep -q '"node-1"' /tmp/nodes; }

# Every machine where a unit was ever enabled has them.
mkdir -p /etc/systemd/system/multi-user.target.wants /etc/systemd/system/sockets.target.wants
cat > /etc/systemd/system/shop.service << UNIT
[Service]
ExecStart=/bin/busybox sleep 1000000
[X-Evenkeel]
CPULimit=200m
MemoryLimit=64Mi
UNIT
systemctl daemon-reload
systemctl start shop
[ "$(score_of_shop)" = 0 ] || fail "the service does not begin at 0"

step a listing before
listing > /tmp/before

step an installation made by hand, with state of the first release
mkdir -p -m 700 /var/lib/evenkeel /var/lib/evenkeel/agent /var/lib/evenkeel/recommender
chmod 755 /var/lib/evenkeel
cp -a /usr/src/captured/agent/. /var/lib/evenkeel/agent/
cp -a /usr/src/captured/recommender/. /var/lib/evenkeel/recommender/
printf '#!/bin/sh\nexit 1\n' > /usr/bin/evenkeel-agent
chmod 755 /usr/bin/evenkeel-agent
cp /usr/src/captured/evenkeel-agent.service /etc/systemd/system/

step packages over it
install_all -i /usr/src/packages/earlier/*.deb
said "made by hand is there: /usr/bin/evenkeel-agent"
said "made by hand is there: /etc/systemd/system/evenkeel-agent.service"
said "state of an earlier installation is kept and used: /var/lib/evenkeel/agent"
said "nothing was started"
rm /etc/systemd/system/evenkeel-agent.service
systemctl daemon-reload
[ "$(systemctl is-active evenkeel-agent || true)" = inactive ] || fail "installing started the agent"
[ "$(systemctl is-enabled evenkeel-agent || true)" = disabled ] || fail "installing enabled the agent"
[ "$(score_of_shop)" = 0 ] || fail "installing changed a setting"
getent group evenkeel-admin > /dev/null || fail "no group evenkeel-admin"

step services
cat >> /etc/evenkeel/agent.toml << TOML
sources.cri.enabled = false
sources.systemd.enabled = true
[node]
name = "node-1"
cluster = "ukt"
[stream]
recommender = "unix:///run/evenkeel/recommender.sock"
TOML
echo 'ingest.forget_after = "36500d"' >> /etc/evenkeel/recommender.toml
systemctl enable --now evenkeel-recommender evenkeel-agent 2> /tmp/tried || { cat /tmp/tried; fail "the services do not start"; }
until_true "the recommender does not know the node of the first release" node_is_known
until_true "the service is not governed" shop_is_governed
frames=$(sed -n 's/.*"frames": \([0-9]*\).*/\1/p' /tmp/nodes | head -1)
[ "${frames:-0}" -ge 2823 ] || { cat /tmp/nodes; fail "frames of the first release are lost: $frames"; }

step an upgrade
agent=$(systemctl show --value -p MainPID evenkeel-agent)
install_all -i /usr/src/packages/later/*.deb
[ "$(systemctl show --value -p MainPID evenkeel-agent)" != "$agent" ] || fail "the upgrade left the old agent running"
grep -q node-1 /etc/evenkeel/agent.toml || fail "the upgrade lost the configuration"
until_true "the upgraded recommender does not know the node" node_is_known
until_true "the service is not governed after the upgrade" shop_is_governed
systemctl is-enabled --quiet evenkeel-agent || fail "the upgrade disabled the agent"

step an upgrade that refuses the configuration leaves the running agent
agent=$(systemctl show --value -p MainPID evenkeel-agent)
echo 'no_such_key = 1' > /etc/evenkeel/conf.d.toml
mkdir -p /etc/evenkeel/conf.d
mv /etc/evenkeel/conf.d.toml /etc/evenkeel/conf.d/wrong.toml
install_all -i /usr/src/packages/later/evenkeel-agent_*.deb
said "the running agent was left as it is"
[ "$(systemctl show --value -p MainPID evenkeel-agent)" = "$agent" ] || fail "the agent was restarted"
rm -r /etc/evenkeel/conf.d

step a purge
install_all --purge evenkeel-agent evenkeel-recommender evenkeel
[ "$(score_of_shop)" = 0 ] || fail "the purge left a score: $(score_of_shop)"
listing > /tmp/after
diff /tmp/before /tmp/after || fail "the purge left or took something (above)"

step a purge without systemd, of a package that was only unpacked
mv /run/systemd/system /run/systemd/system.away
install_all -i /usr/src/packages/later/evenkeel-agent_*.deb
install_all --purge evenkeel-agent
mv /run/systemd/system.away /run/systemd/system
listing > /tmp/after
diff /tmp/before /tmp/after || fail "without systemd something is left (above)"
step done
