#!/bin/sh
# nvcc11.sh DIR: the compiler of CUDA 11.8, which knows sm_70 (13 does not), in DIR;
# prints the path of nvcc. Debian has the compiler (non-free, in the mirrors that apt is set up
# for), PyPI the headers. Needs apt-get, dpkg, and the environment of make interop.
set -eu
mkdir -p "$1"
dir=$(cd "$1" && pwd)
nvcc=$dir/cuda/bin/nvcc
log=$dir/log
if [ -x "$nvcc" ]; then echo "$nvcc"; exit 0; fi
mkdir -p "$dir/apt/sources" "$dir/apt/lists/partial" "$dir/apt/cache/archives/partial"
exec 3>&1 > "$log" 2>&1
trap 'tail -n 3 "$log" >&3' EXIT

for f in /etc/apt/sources.list.d/*.sources; do
    [ -f "$f" ] && sed 's/^Components:.*/Components: non-free/' "$f" > "$dir/apt/sources/${f##*/}"
done
for f in /etc/apt/sources.list /etc/apt/sources.list.d/*.list; do
    [ -f "$f" ] && sed -n 's/^\(deb .*\) main.*/\1 non-free/p' "$f" > "$dir/apt/sources/${f##*/}"
done
mv "$dir/apt/sources/sources.list" "$dir/apt/sources/main.list" 2> /dev/null || true
python=$(pwd)/build/venv/bin/python
cd "$dir"
apt() {
    apt-get -o Dir::Etc::sourcelist=/dev/null -o Dir::Etc::sourceparts="$dir/apt/sources" \
        -o Dir::State::lists="$dir/apt/lists" -o Dir::Cache="$dir/apt/cache" "$@"
}
apt update
apt download nvidia-cuda-toolkit
dpkg -x nvidia-cuda-toolkit_*.deb deb
"$python" -m pip download --quiet --disable-pip-version-check --no-deps \
    nvidia-cuda-runtime-cu11==11.8.89 nvidia-cuda-nvcc-cu11==11.8.89
for wheel in ./*.whl; do "$python" -m zipfile -e "$wheel" wheel; done

mkdir -p cuda/include cuda/nvvm/bin cuda/nvvm/libdevice cuda/part
for part in wheel/nvidia/*; do [ -d "$part/include" ] && cp -r "$part"/include/* cuda/include/; done
cp wheel/nvidia/cuda_nvcc/nvvm/libdevice/* cuda/nvvm/libdevice/
cp deb/usr/bin/cudafe++ deb/usr/bin/ptxas deb/usr/bin/fatbinary cuda/part/
cp -r deb/usr/lib/nvidia-cuda-toolkit/bin/nvcc deb/usr/lib/nvidia-cuda-toolkit/bin/crt cuda/part/
cp deb/usr/lib/nvidia-cuda-toolkit/bin/cicc cuda/nvvm/bin/
cat > cuda/part/nvcc.profile <<'P'
TOP                = $(_HERE_)/..
NVVMIR_LIBRARY_DIR = $(TOP)/nvvm/libdevice
PATH              += $(TOP)/nvvm/bin:$(_HERE_):
INCLUDES          += "-I$(TOP)/include" $(_SPACE_)
P
mv cuda/part cuda/bin
rm -rf ./*.deb ./*.whl deb wheel apt
trap - EXIT
echo "$nvcc" >&3
