# sh kubernetes.sh [COUNT]: rotate a database in COUNT ranges, in the pods of rotate.yaml, and merge their results.
#
# Needs kubectl, VKEY, the verifier key of the ledger, and, to plan, DATABASE_URL. Ends with the exit code of
# `sealpoint merge`. The objects of a run that has failed remain, and another run is refused until you delete them:
# kubectl delete job/sealpoint-rotate job/sealpoint-merge configmap/sealpoint-run
set -eu
cd "$(dirname "$0")"
ranges=$(mktemp -d)/ranges
trap 'rm -r "$(dirname "$ranges")"' EXIT
sealpoint shards --db-env DATABASE_URL --count "${1:-16}" > "$ranges"
kubectl create configmap sealpoint-run --from-literal=run="$(date -u +%Y%m%dT%H%M%SZ)" \
    --from-literal=vkey="$VKEY" --from-file=ranges="$ranges" --from-file=range.sh
sed "s/^  completions: .*/  completions: $(wc -l < "$ranges")/" rotate.yaml | kubectl create -f -
until kubectl get job sealpoint-rotate -o 'jsonpath={.status.conditions[*].type}' | grep -Eqw 'Complete|Failed'; do
    sleep "${WAIT:-10}"
done
kubectl create -f merge.yaml # of a Job that has failed, too: merge says why it is not proven
ended='jsonpath={.items[*].status.containerStatuses[*].state.terminated.exitCode}'
until code=$(kubectl get pods -l job-name=sealpoint-merge -o "$ended") && [ -n "$code" ]; do
    sleep "${WAIT:-10}"
done
kubectl logs job/sealpoint-merge
[ "$code" != 0 ] || kubectl delete job/sealpoint-rotate job/sealpoint-merge configmap/sealpoint-run
exit "$code"
