"""The campaign of faults: its short form holds, and it fails where a safeguard is taken away."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from faults import campaign
from faults.judge import python


def run(workspace: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    command, variables = python("-m", "faults.campaign", *arguments, TMPDIR=str(workspace))
    return subprocess.run(command, env=variables, capture_output=True, text=True, timeout=200)


def test_the_short_form_holds(tmp_path: Path) -> None:
    """Kills, shared sweeps, concurrent writers, flipped bits, damage, odd entries and full disks lose nothing."""
    done = run(tmp_path, "--short", "--minutes", 0.1, "--seed", 0)
    assert done.returncode == 0 and done.stdout.endswith(" 0 failed\n"), done.stdout + done.stderr
    for name in campaign.SHORT:
        (line,) = (line for line in done.stdout.splitlines() if line.startswith(f"{name} "))
        held, _, tried = line.split()[1:4]
        assert held == tried and int(held) > 0


@pytest.mark.parametrize("safeguard", campaign.SAFEGUARDS)
def test_a_safeguard_taken_away_is_told(tmp_path: Path, safeguard: str) -> None:
    """Without checksums, claims, the lock or the cutting back of half a line, the trial behind it fails."""
    done = run(tmp_path, "--without", safeguard, "--seed", 0)
    assert done.returncode == 1 and "FAILED" in done.stdout and "AssertionError" in done.stderr, done.stdout
