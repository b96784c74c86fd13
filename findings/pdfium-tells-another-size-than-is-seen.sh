#!/usr/bin/env bash
# PDFium says that the font of an enlarged text has the size that it is enlarged from: text that Acrobat makes of Word is "1 point" large.
#
# pypdfium2 5.15.2: FPDFText_GetFontSize gives the number before the operator Tf, whatever the text matrix (Tm) makes of it, while the boxes
# of the same characters (FPDFText_GetLooseCharBox) are as large as they are seen. Acrobat's PDFMaker for Word and Distiller write
# `/F1 1 Tf 11 0 0 11 x y Tm`; pdfTeX writes `/F1 11 Tf`. Headings found by size, and gaps measured in sizes, are right for one kind of files only.
# The size that is seen is that number times the length of (b, d) of FPDFText_GetMatrix.
# Seen 27 November 2026, Python 3.11:
#   11 Tf: size 11.0, matrix 1.0
#   1 Tf and 11 0 0 11 Tm: size 1.0, matrix 11.0
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet 'pypdfium2==5.15.2' 'pypdf==7.1.0'
cat > "$folder/ask.py" <<'PY'
import io
from ctypes import byref
from math import hypot

import pypdfium2 as pdfium
import pypdfium2.raw as raw
from pypdf import PdfWriter
from pypdf.generic import DecodedStreamObject, DictionaryObject, NameObject


def ask(text: bytes) -> tuple[float, float]:
    writer = PdfWriter()
    page = writer.add_blank_page(612, 792)
    font = DictionaryObject({NameObject(k): NameObject(v) for k, v in (("/Type", "/Font"), ("/Subtype", "/Type1"), ("/BaseFont", "/Helvetica"))})
    page[NameObject("/Resources")] = DictionaryObject({NameObject("/Font"): DictionaryObject({NameObject("/F1"): font})})
    stream = DecodedStreamObject()
    stream.set_data(text)
    page[NameObject("/Contents")] = writer._add_object(stream)
    out = io.BytesIO()
    writer.write(out)
    read = pdfium.PdfDocument(out.getvalue())[0].get_textpage()
    matrix = raw.FS_MATRIX()
    raw.FPDFText_GetMatrix(read, 0, byref(matrix))
    return round(raw.FPDFText_GetFontSize(read, 0), 1), round(hypot(matrix.b, matrix.d), 1)


plain = ask(b"BT /F1 11 Tf 72 700 Td (Mill) Tj ET")
enlarged = ask(b"BT /F1 1 Tf 11 0 0 11 72 700 Tm (Mill) Tj ET")
print(f"11 Tf: size {plain[0]}, matrix {plain[1]}")
print(f"1 Tf and 11 0 0 11 Tm: size {enlarged[0]}, matrix {enlarged[1]}")
assert (plain, enlarged) == ((11.0, 1.0), (1.0, 11.0))
PY
"$folder/env/bin/python" "$folder/ask.py"
