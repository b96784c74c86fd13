"""The words of DESIGN.md: those that it replaced stay out of code, messages and documents."""

import re
import subprocess

from tests.e2e.stand import ROOT

FORMER = re.compile(
    r"\b(sentinels?|keepers?|lends?|lent|lending|borrow(s|ed|ing)?|nanny|bury|buries|buried|hasty|careful (reader|planner)|breakages?|"
    r"manners|withheld|ledgers?|mend(s|ed|ing)?|takes? away|taken away|puts? back|told to end|seat_worker|mean_surprise|nobody special|"
    r"prepare_surroundings|places\.py|walls|config\.system|SearcherSystem|PlannerSystem|[Gg]rounds?|dialogues?|void turns?)\b"
)
SAID = re.compile(
    r'"walls"|(trial|self)\.walls|walls: tuple|"ground"|ends the dialogue|lighthouse|house keeper|'
    r"keeper\||"
    r"\|buried"
)
"""Lines that name a former setting, a key that others read, the prompt of earlier models, or English that a pattern looks for."""
FOLDERS = ("slmsearch", "flows", "tasks", "docs", "deployments", "README.md", "Makefile")
OTHER = ("slmsearch/corpus/world/", "slmsearch/extensions/sandbox/escapes/")
"""English of generated pages, and what programs say."""


def test_former_words_stay_out() -> None:
    files = subprocess.run(["git", "ls-files", *FOLDERS], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    found = []
    for name in files:
        if name.startswith(OTHER) or not name.endswith((".py", ".md", ".yaml", ".toml", ".html", ".js", "Makefile")):
            continue
        for number, line in enumerate((ROOT / name).read_text(encoding="utf-8").splitlines(), 1):
            if (match := FORMER.search(line)) and not SAID.search(line):
                found.append(f"{name}:{number}: {match[0]}")
    assert not found
