"""The bench as a command; whether a bar holds is for a quiet machine to say."""

import json
import subprocess
import sys
from pathlib import Path

BENCH = Path(__file__).parents[1] / "scripts" / "bench.py"


def bench(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(BENCH), *words], capture_output=True, text=True)


def test_json_is_one_document_with_the_machine_and_the_rows():
    done = bench("--json", "--row", "import provenzoo")
    assert done.returncode in (0, 3), done.stderr
    told = json.loads(done.stdout)
    assert told.keys() == {"machine", "rows"} and "cores" in told["machine"]
    (row,) = told["rows"]
    assert row.keys() == {"name", "ours", "other", "ratio", "bar", "holds"}
    assert row["name"] == "import provenzoo / bare python" and row["holds"] is (done.returncode == 0)


def test_an_unknown_row_is_an_error_that_lists_the_rows():
    done = bench("--row", "teleport")
    assert done.returncode == 2 and done.stdout == ""
    assert "no row has 'teleport'" in done.stderr and "our loop / bare loop" in done.stderr
