#!/usr/bin/env bash
# The chat templates of Llama 3.1 (built-in tools) and LFM2.5 teach calls that look like Python, but put an argument between the quotes as it
# is. An argument with that quote in it is written as text that is no Python: the model is shown calls that cannot be read back. The
# templates are the published ones, as trl 1.16 carries them; Qwen's JSON escapes.
#
# Seen with trl 1.16.0 and transformers 5.23.0:
#   lfm2_2_5.jinja  search(query='the mill')               -> {'query': 'the mill'}
#   lfm2_2_5.jinja  search(query='the miller's house')     -> SyntaxError
#   llama3_1.jinja  search(query="the mill")               -> {'query': 'the mill'}
#   llama3_1.jinja  search(query="the "old" mill")         -> SyntaxError
#   qwen3_instruct_2507.jinja  {"name": "search", "arguments": {"query": "the \"old\" mill"}}   (valid JSON)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
pip=("$folder/venv/bin/pip" --quiet --disable-pip-version-check install)
"${pip[@]}" transformers==5.23.0 jinja2==3.1.6
"${pip[@]}" --no-deps trl==1.16.0
"$folder/venv/bin/python" - "$folder/venv" 2> "$folder/warnings" <<'PYTHON' || { tail -3 "$folder/warnings"; exit 1; }
import ast
import json
import sys
from pathlib import Path

from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import PreTrainedTokenizerFast

(templates,) = Path(sys.argv[1]).glob("lib/python3.*/site-packages/trl/chat_templates")
tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(WordLevel({"x": 0}, unk_token="x")), bos_token="<s>", eos_token="</s>")


def write(template: str, query: str, **more: object) -> str:
    call = {"type": "function", "function": {"name": "search", "arguments": {"query": query}}}
    messages = [{"role": "user", "content": "Where?"}, {"role": "assistant", "content": "", "tool_calls": [call]}]
    return tokenizer.apply_chat_template(messages, chat_template=(templates / template).read_text(), tokenize=False, **more)


def read(text: str) -> dict[str, object] | str:
    try:
        call = ast.parse(text, mode="eval").body
    except SyntaxError:
        return "SyntaxError"
    return {keyword.arg: ast.literal_eval(keyword.value) for keyword in call.keywords}


lfm, llama = ("lfm2_2_5.jinja", {}), ("llama3_1.jinja", {"builtin_tools": ["search"]})
changed = False
for (template, more), query, seen in (
    (lfm, "the mill", {"query": "the mill"}),
    (lfm, "the miller's house", "SyntaxError"),
    (llama, "the mill", {"query": "the mill"}),
    (llama, 'the "old" mill', "SyntaxError"),
):
    text = write(template, query, **more)
    text = text[text.rindex("search") :].partition("<|")[0].strip().removesuffix("]").replace("search.call(", "search(")
    print(template, text, "->", read(text))
    changed |= read(text) != seen
text = write("qwen3_instruct_2507.jinja", 'the "old" mill').partition("<tool_call>")[2].partition("</tool_call>")[0]
print("qwen3_instruct_2507.jinja", text.strip())
changed |= json.loads(text)["arguments"] != {"query": 'the "old" mill'}
sys.exit("the templates write calls otherwise now" if changed else 0)
PYTHON
