#!/usr/bin/env bash
# A Ceph cluster of one monitor and one OSD on this machine, for tests and for a first look. It keeps
# one copy of all data, in a folder. It needs no systemd and no root, and listens on 127.0.0.1 only.
#
#   one-node.sh start DIR [memstore|bluestore]  starts a new cluster in the folder DIR
#   one-node.sh stop DIR                        stops the programs, and keeps the data
#   one-node.sh resume DIR                      starts a stopped cluster again (bluestore only)
#   one-node.sh run DIR [memstore|bluestore]    starts one in a new or empty folder, and deletes the
#                                               folder when standard input ends
#   one-node.sh kill-osd DIR                    kills the OSD (SIGKILL)
#   one-node.sh start-osd DIR                   starts the OSD again
#
# Packages of Debian and Ubuntu: ceph-mon ceph-osd ceph-common librbd1
#
# The cluster has a pool `rbd`, and its configuration is DIR/ceph.conf:
#   rbd --conf DIR/ceph.conf create rbd/vm --size 10G
# `memstore` keeps all data in memory. `bluestore` keeps it in the file DIR/osd/block.
set -euo pipefail

usage() {
    sed -n 's/^# \{0,1\}//p' "$0" | sed -n 2,17p >&2
    exit 2
}
[ $# -ge 2 ] || usage
command=$1
case $command in
start) ;;
run)
    # The end of `run` deletes the folder.
    if [ -e "$2" ]; then
        content=$(ls -A "$2")
        [ -z "$content" ] || {
            echo "$2 is not an empty folder, and run deletes its folder: name a new one" >&2
            exit 1
        }
    fi
    ;;
stop | resume | kill-osd | start-osd)
    [ -e "$2/ceph.conf" ] || {
        echo "$2 has no cluster: $2/ceph.conf does not exist; create one with: $0 start $2" >&2
        exit 1
    }
    ;;
*) usage ;;
esac
store=${3:-bluestore}

for program in ceph ceph-mon ceph-osd ceph-authtool monmaptool rbd; do
    command -v $program > /dev/null || {
        echo "$program is missing: apt-get install ceph-mon ceph-osd ceph-common librbd1" >&2
        exit 1
    }
done
case $command in start | run) mkdir -p "$2" ;; esac
dir=$(cd "$2" && pwd)
conf=$dir/ceph.conf

ceph() { command ceph --conf "$conf" --connect-timeout 30 "$@"; }

# Whether a process is a program of Ceph. The id in a file may have become that of another program.
is_program() { [ "$(cat "/proc/$1/comm" 2> /dev/null)" = "ceph-$2" ]; }

# Ends a program: with TERM, and after 10 s with KILL.
end() {
    local pid
    pid=$(cat "$dir/$1.pid" 2> /dev/null) || return 0
    is_program "$pid" "$1" || { rm -f "$dir/$1.pid"; return 0; }
    kill "-${2:-TERM}" "$pid" 2> /dev/null || { rm -f "$dir/$1.pid"; return 0; }
    for _ in $(seq 100); do
        is_program "$pid" "$1" || break
        sleep 0.1
    done
    if is_program "$pid" "$1"; then kill -KILL "$pid" 2> /dev/null || true; fi
    rm -f "$dir/$1.pid"
}

# A port that no program uses.
free_port() {
    local port
    while :; do
        port=$((20000 + RANDOM % 12000))
        (: < "/dev/tcp/127.0.0.1/$port") 2> /dev/null || break
    done
    echo "$port"
}

configure() {
    mkdir -p "$dir"/{mon,osd,run}
    cat > "$conf" << END
[global]
fsid = $(cat /proc/sys/kernel/random/uuid)
mon_host = [v2:127.0.0.1:$(free_port)]
public_addr = 127.0.0.1
ms_bind_ipv6 = false
keyring = $dir/keyring
run_dir = $dir/run
admin_socket =
log_file = $dir/\$name.log
pid_file = $dir/\$type.pid
auth_cluster_required = cephx
auth_service_required = cephx
auth_client_required = cephx
# One copy of the data: a cluster that must not lose any has three, on three machines.
osd_pool_default_size = 1
osd_pool_default_min_size = 1
osd_pool_default_pg_num = 8
osd_pool_default_pg_autoscale_mode = off
osd_crush_chooseleaf_type = 0
mon_allow_pool_size_one = true
mon_allow_pool_delete = true
mon_warn_on_pool_no_redundancy = false
mon_data_avail_warn = 1
mon_data_avail_crit = 1
[mon]
mon_data = $dir/mon
# Each step of the start waits for one.
paxos_propose_interval = 0.05
paxos_min_wait = 0.01
[osd]
osd_data = $dir/osd
osd_objectstore = $store
osd_memory_target = 1G
osd_class_update_on_start = false
bluestore_block_size = 10G
bluestore_fsck_on_mount = false
memstore_device_bytes = 4G
# A client notices soon that an OSD has been killed.
osd_fast_shutdown = true
[client]
log_file =
pid_file =
END
}

start_mon() { ceph-mon --id a --conf "$conf"; }
# The OSD that was killed may hold its files for a moment.
start_osd() {
    for _ in 1 2 3 4 5; do
        ceph-osd --id 0 --conf "$conf" > "$dir/start.log" 2>&1 && return
        echo "the OSD does not start: $(tail -n 3 "$dir/start.log")" >&2
        sleep 1
    done
    return 1
}

start() {
    [ ! -e "$conf" ] || { echo "$dir has a cluster already: resume it, or delete it" >&2; exit 1; }
    configure
    local mon fsid uuid
    mon=$(sed -n 's/^mon_host = //p' "$conf")
    fsid=$(sed -n 's/^fsid = //p' "$conf")
    ceph-authtool --create-keyring "$dir/keyring" --gen-key --name mon. --cap mon 'allow *' \
        > /dev/null
    ceph-authtool "$dir/keyring" --gen-key --name client.admin --cap mon 'allow *' \
        --cap osd 'allow *' --cap mgr 'allow *'
    monmaptool --create --fsid "$fsid" --addv a "$mon" "$dir/monmap" > /dev/null
    ceph-mon --mkfs --id a --conf "$conf" --monmap "$dir/monmap" --keyring "$dir/keyring"
    start_mon
    uuid=$(cat /proc/sys/kernel/random/uuid)
    ceph osd new "$uuid" 0 > /dev/null
    ceph-authtool "$dir/keyring" --gen-key --name osd.0 --cap mon 'allow profile osd' \
        --cap osd 'allow *'
    ceph auth add osd.0 -i "$dir/keyring" > /dev/null 2>&1
    ceph-osd --mkfs --id 0 --conf "$conf" --osd-uuid "$uuid" > /dev/null 2>&1
    start_osd
    ceph osd pool create rbd > /dev/null 2>&1
    rbd --conf "$conf" pool init rbd
    echo "started: $conf"
}

stop() {
    end osd
    end mon
}

case $command in
start) start ;;
stop) stop ;;
resume)
    start_mon
    start_osd
    ;;
run)
    trap 'stop; rm -rf "$dir"' EXIT
    start
    cat > /dev/null
    ;;
kill-osd) end osd KILL ;;
start-osd) start_osd ;;
esac
