#!/usr/bin/env bash
# Packs what a GPU machine without a network needs beside a copy of this checkout's files:
#   tests/gpu/pack_offline.sh FOLDER
# FOLDER then holds wheels of packages that images for GPUs commonly lack, Debian packages of the libraries that the
# importer of nsys wants, and .git without the contents of files, so that runs there name their commit. There, in the
# copy of the checkout: source tests/gpu/unpack_offline.sh FOLDER
# Read from the environment: PYTHON_VERSION of that machine (default 3.12), PYTHON of this one.
set -euo pipefail
folder=$(realpath -m "${1:?usage: tests/gpu/pack_offline.sh FOLDER}")
cd "$(dirname "$0")/../.."
mkdir -p "$folder/deb"

fetch() {  # REQUIREMENT: its newest wheel that suits any glibc of today's
  local platforms=(--platform manylinux2014_x86_64) glibc
  for glibc in 5 12 17 24 25 27 28 31 34 35 39; do platforms+=(--platform "manylinux_2_${glibc}_x86_64"); done
  "${PYTHON:-python3}" -m pip download -q --disable-pip-version-check --no-deps --only-binary=:all: \
    --implementation cp --python-version "${PYTHON_VERSION:-3.12}" "${platforms[@]}" -d "$folder" "$1"
}

rm -f "$folder"/*.whl
for name in nvtx duckdb pydantic annotated-types typing-inspection ncu-report kvikio-cu13 libkvikio-cu13 rapids-logger \
  nvidia-cutlass; do
  fetch "$(grep -i "^$name==" constraints.txt || echo "$name")"
done
# One version of pydantic-core suits one of pydantic.
fetch "$(unzip -p "$folder"/pydantic-2*.whl '*/METADATA' | sed -n 's/^Requires-Dist: \(pydantic-core==[^ ;]*\).*/\1/p')"
(cd "$folder/deb" && rm -f ./*.deb && apt-get download -q libdw1 libelf1 libbz2-1.0 liblzma5 libcurl3-gnutls > /dev/null)

bare=$(mktemp -d)
trap 'rm -rf "$bare"' EXIT
git clone -q --depth 1 --no-checkout --filter=blob:none -u 'git -c uploadpack.allowFilter=true upload-pack' \
  "file://$PWD" "$bare/it"
git -C "$bare/it" reset -q
git -C "$bare/it" config core.fileMode false
tar -C "$bare/it" -czf "$folder/git.tgz" .git
du -sh "$folder"
git log --oneline -1
