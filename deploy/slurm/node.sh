#!/bin/sh
# Prolog and Epilog of a node, from the package tracewise-agent. In slurm.conf:
#   Prolog=/usr/share/tracewise-agent/slurm/node.sh
#   Epilog=/usr/share/tracewise-agent/slurm/node.sh
# slurm.conf is the same for the whole cluster: install the package on all nodes first, because Slurm drains a node on which a
# prolog is missing. The address of the agent is TRACEWISE_AGENT_URL in /etc/default/tracewise-agent; Slurm sets the environment.
# It starts the agent if it does not respond, so that a job is not without readings. It never fails a job and takes at most two
# seconds. Tracewise needs neither: it finds jobs in control groups.
export PATH=/usr/sbin:/usr/bin:/sbin:/bin${PATH:+:$PATH}
settings=${TRACEWISE_AGENT_DEFAULTS:-/etc/default/tracewise-agent}
url=$(sed -n 's/^TRACEWISE_AGENT_URL=//p' "$settings" 2>/dev/null | tail -n 1 | tr -d "\"'")
url=${url:-http://127.0.0.1:9742/healthz}
if ! timeout --kill-after=0.2 1 tracewise-agent health --url "$url" >/dev/null 2>&1; then
    timeout 0.3 logger --tag tracewise "the agent does not respond around job ${SLURM_JOB_ID:-unknown}; it is started" 2>/dev/null
    # systemd starts it in the background.
    timeout --kill-after=0.2 0.3 systemctl start --no-block tracewise-agent >/dev/null 2>&1
fi
exit 0
