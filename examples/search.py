"""Build the index of a folder of documents and search it: python examples/search.py FOLDER "your query"."""

import sys
from pathlib import Path

from slmsearch import RunConfig, open_indexed_corpus

folder, query = sys.argv[1:]
config = RunConfig().changed({"corpus.pages": str(Path(folder).resolve()), "paths.data_dir": str(Path("data").resolve())})
corpus = open_indexed_corpus(config)  # reads the documents and builds the index; both are found again the next time
(hits,) = corpus.toolbox.index.search([query], top_k=5)
for hit in hits:
    print(f"{hit.score:.2f}  {hit.title}  ({hit.section_id})")
