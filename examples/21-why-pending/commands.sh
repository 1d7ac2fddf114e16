# The pods of the example before take their devices first; then `late` asks for a whole big GPU.
dralab explain -f ../20-allocate -f late.yaml ml/late
# And why did ml/serve-b get what it got?
dralab explain -f ../20-allocate -f late.yaml ml/serve-b
