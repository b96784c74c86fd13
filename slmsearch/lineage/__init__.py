"""Where a result comes from: walking stored artefacts back to what made them and forth to what was made from them."""
