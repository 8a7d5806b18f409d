# Sourced by demo.sh and test.sh: goes to the repository's root and makes .venv there.
#
#   prepare_venv          the package and what it depends on
#   prepare_venv dev      and what the checks need
#
# A second call finds the environment as it was left and installs nothing, unless pyproject.toml, the Python or the
# place of the repository changed. Two files in .venv tell: `.installing` while it is made, `.installed` once it is
# whole. So one whose making was interrupted is made anew; one that you made yourself is added to.

set -euo pipefail
ROOT=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd -P)
VENV=$ROOT/.venv
cd -- "$ROOT"
unset PYTHONHOME PYTHONPATH PIP_USER

die() {
    printf 'error: %s\n' "$1" >&2
    exit 1
}

new_enough() {
    "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
}

# Print the Python to build on: $PYTHON, else that of the .venv there is, else the first that is new enough.
find_python() {
    local candidate candidates=("$VENV/bin/python" python3 python3.14 python3.13 python3.12 python3.11 python)
    [ -z "${PYTHON:-}" ] || candidates=("$PYTHON")
    for candidate in "${candidates[@]}"; do
        if new_enough "$candidate"; then
            "$candidate" -c 'import sys; print(sys._base_executable)'
            return
        fi
    done
    candidate=${PYTHON:-python3}
    die "provenzoo needs Python 3.11 or newer ($candidate: $("$candidate" --version 2>/dev/null || echo 'does not run'))
install one, or name it: PYTHON=/path/to/python3.12 bash $0"
}

prepare_venv() {
    local extra=${1:-} python base needs
    python=$(find_python)
    base="$ROOT, Python $("$python" -c 'import sys; print(sys.version.split()[0], sys.base_prefix)')"
    needs=$(cksum <pyproject.toml)
    if holds "$base" && holds "$needs${extra:+ $extra}"; then
        return
    fi
    make_venv "$python" "$base"
    echo "installing provenzoo${extra:+[$extra]} into .venv (the first time: minutes, and some GB for PyTorch)" >&2
    "$VENV/bin/python" -m pip install -qq --disable-pip-version-check --no-input -e ".${extra:+[$extra]}" ||
        die "the installation failed, for the reason above; call $0 again to go on"
    printf '%s\n' "$base" "$needs" ${extra:+"$needs $extra"} >"$VENV/.installing"
    mv -- "$VENV/.installing" "$VENV/.installed"
}

# Whether a line stands in .installed.
holds() {
    [ ! -e "$VENV/.installing" ] && [ -f "$VENV/.installed" ] && grep -qxF -- "$1" "$VENV/.installed"
}

# Leave a .venv with pip: the one there is if it can be kept, else a fresh one. Ours is marked `.installing`.
make_venv() {
    local python=$1 base=$2
    "$python" -c 'import venv, ensurepip' 2>/dev/null ||
        die "$python makes no environments: it lacks venv or ensurepip (Debian, Ubuntu: apt-get install python3-venv)"
    if [ -e "$VENV/.installing" ] || { [ -f "$VENV/.installed" ] && ! holds "$base"; }; then
        rm -rf -- "$VENV"
    elif [ -e "$VENV/bin/python" ] && ! new_enough "$VENV/bin/python"; then
        die "$VENV is there with a Python below 3.11; move it away and call $0 again"
    fi
    if [ ! -e "$VENV/bin/python" ] || [ -f "$VENV/.installed" ]; then
        mkdir -p -- "$VENV"
        : >"$VENV/.installing"
        rm -f -- "$VENV/.installed"
    fi
    "$VENV/bin/python" -m pip --version >/dev/null 2>&1 || "$python" -m venv "$VENV" ||
        die "$python could not make an environment in $VENV"
}
