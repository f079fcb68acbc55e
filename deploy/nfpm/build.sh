#!/bin/sh
# Builds the packages of Headroom, deb and rpm, for this machine's architecture.
#
# usage: deploy/nfpm/build.sh FOLDER [PACKAGE...]
#
# The same source, Go version and SOURCE_DATE_EPOCH give the same bytes. Without the
# latter the time of the last commit is taken, and 0 outside a git checkout. GO names
# the go command. Without named packages headroom-hadoop and headroom-spark are built
# too, where the machine can build the hooks; otherwise it is said that they are not.
# HOOKS names a folder that holds their jars already, BIN the folder that the programs are
# built into, as make build does: bin/, where those that are up to date are not built again.
set -eu
cd "$(dirname "$0")/../.."
out=${1:?usage: deploy/nfpm/build.sh FOLDER [PACKAGE...]}
shift
all=
[ $# -gt 0 ] || { all=yes && set -- headroom headroom-powerd headroom-coordinator headroom-tools headroom-hadoop headroom-spark; }
go=${GO:-go}
mkdir -p "$out"
out=$(cd "$out" && pwd)

stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
trap 'exit 130' INT TERM
umask 022

# nfpm is built first: where it is not to be had, nothing else is done.
nfpm=$(GOWORK=off $go tool -modfile=tools/nfpm.mod -n nfpm)
CGO_ENABLED=0 GOWORK=off $go build -trimpath -buildvcs=false -o "${BIN:=bin}/" ./cmd/headroom ./cmd/powerd ./cmd/coordinator ./cmd/scheduler
CGO_ENABLED=0 GOWORK=off $go build -C lab -trimpath -buildvcs=false -o "$(cd "$BIN" && pwd)/" ./cmd/powerlab
mkdir "$stage/bin"
for program in headroom powerd coordinator scheduler powerlab; do
	cp "$BIN/$program" "$stage/bin/"
done

# What a package holds beside the programs: what a program can print is printed by it.
mkdir "$stage/man" "$stage/completions"
for program in headroom powerd coordinator scheduler powerlab; do
	for shell in bash zsh fish; do
		"$stage/bin/$program" completion "$shell" >"$stage/completions/$program.$shell"
	done
done
for page in docs/man/*; do
	gzip -9n <"$page" >"$stage/man/${page##*/}.gz"
done
# The packaged file names no node: the default is the name of the host.
"$stage/bin/powerd" config example | sed 's/^node:/# node:/' >"$stage/powerd.yaml"
cp -R docs/runbooks "$stage/runbooks"
mkdir "$stage/guides"
for page in secure upgrade backup threat-model exit-codes json api; do
	cp "docs/$page.md" "$stage/guides/"
done
cp api/openapi.yaml "$stage/guides/"
cp LICENSE "$stage/"
cp -R deploy/systemd "$stage/systemd"
cp -R deploy/nfpm "$stage/nfpm.d"

# The plug-ins are Java: only where there is what builds them.
case " $* " in *" headroom-hadoop "* | *" headroom-spark "*)
	status=0
	if [ -n "${HOOKS:-}" ]; then
		cp -R "$HOOKS" "$stage/hooks"
	else
		sh hooks/build.sh "$stage/hooks" || status=$?
	fi
	if [ "$status" -eq 3 ] && [ -n "$all" ]; then
		echo "headroom-hadoop and headroom-spark are not built: see above; the other packages are" >&2
		set -- headroom headroom-powerd headroom-coordinator headroom-tools
	elif [ "$status" -ne 0 ]; then
		exit "$status"
	else
		cp hooks/README.md hooks/apps-spark/words.py "$stage/hooks/"
	fi
	;;
esac

# The programs of one build have one version, or it is no release.
VERSION=$("$stage/bin/powerd" version | cut -d ' ' -f 2)
for program in headroom coordinator scheduler; do
	other=$("$stage/bin/$program" version | cut -d ' ' -f 2)
	if [ "$VERSION" != "$other" ]; then
		echo "powerd is $VERSION and $program is $other: both must say cli.Version" >&2
		exit 1
	fi
done
ARCH=$($go env GOARCH)
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 0)}
export VERSION ARCH SOURCE_DATE_EPOCH
find "$stage" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +

# Nearly all of the time is compression, which uses one processor: all run at once.
cd "$stage"
pids=
for package; do
	for format in deb rpm; do
		"$nfpm" package --config "nfpm.d/$package.yaml" --packager "$format" --target "$out/" >"$stage/$package.$format.log" &
		pids="$pids $!"
	done
done
for pid in $pids; do
	wait "$pid" || { cat "$stage"/*.log >&2; exit 1; }
done
ls "$out"
