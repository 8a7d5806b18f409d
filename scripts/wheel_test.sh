#!/usr/bin/env bash
# Build the wheel and run the suite's core against it, in an environment of its own.
#
#   bash scripts/wheel_test.sh [pytest's own arguments]
#
# The environment holds the wheel alone. Its dependencies are those of .venv, shared by a path file, so that the wheel's own
# list of them is not tested. Python reads no path file of the folders that it adds this way: the editable install in
# .venv stays out of sight.
# shellcheck source=scripts/_venv.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/_venv.sh"

# What does not look for the repository around it.
CORE=(content plain registry recipe plan claims checkpoint models split metrics corruptions loop
    run resume rehearsal verify quickstart report fetch cli doctor patch_data patch_attention patch_metrics recipes_jelassi2022
    wishart linear_attention linear_regression_prompts in_context in_context_bounds overlay recipes_gatmiry2024
    publish licences default_seed hub_load hub_verify hub_teacher hostile hostile_verify hostile_publish round_trip timm_interop preview
    axes sweep on_ray plugin new)

prepare_venv dev
python=$VENV/bin/python
work=$(mktemp -d)
trap 'rm -rf -- "$work"' EXIT

"$python" -m build --wheel --no-isolation --outdir "$work/dist" . >"$work/build.log" 2>&1 ||
    { cat "$work/build.log" >&2 && die 'the wheel does not build'; }
"$python" -m venv --without-pip "$work/env"
"$python" -m pip --python "$work/env/bin/python" install -qq --disable-pip-version-check --no-deps "$work"/dist/*.whl
"$python" - "$work/env/bin/python" <<'PY'
import subprocess, sys, sysconfig
from pathlib import Path
ask = "import sysconfig; print(sysconfig.get_path('purelib'))"
own = subprocess.run([sys.argv[1], "-c", ask], check=True, capture_output=True, text=True).stdout.strip()
places = dict.fromkeys(sysconfig.get_path(kind) for kind in ("purelib", "platlib"))
Path(own, "dependencies.pth").write_text("".join(f"{place}\n" for place in places))
PY

mkdir "$work/tests"
cp -- pyproject.toml "$work/"
for file in tests/*.py; do
    [[ $file == tests/test_* ]] || cp -- "$file" "$work/tests/"
done
for name in "${CORE[@]}"; do
    cp -- "tests/test_$name.py" "$work/tests/"
done
for folder in tests/*/; do
    [ ! -d "$folder" ] || cp -R -- "$folder" "$work/tests/"
done
cd -- "$work" || exit

"$work/env/bin/python" - "$work/env" <<'PY'
import sys
from pathlib import Path
import provenzoo
from provenzoo.content import own_content
here = Path(sys.argv[1]).resolve()
package = Path(provenzoo.__file__).resolve().parent
assert here in package.parents, f"the wheel is hidden by {package}"
assert own_content() == package / "_content", own_content()
for name in ("registry/models/vit.yaml", "pipelines/quickstart.yaml", "cards"):
    assert (own_content() / name).exists(), f"the wheel lacks {name}"
assert (package / "py.typed").is_file(), "the wheel lacks py.typed"
PY
names=$("$work/env/bin/provenzoo" list models)
grep -qx vit <<<"$names" || die "the wheel's command lists no vit: $names"
"$work/env/bin/python" -m pytest -o pythonpath= -m 'not slow' "$@"
