# The pods of example 20 get their devices first; then `late` requests a whole big GPU.
dralab explain -f ../20-allocate -f late.yaml ml/late
# And why did ml/serve-b get its devices?
dralab explain -f ../20-allocate -f late.yaml ml/serve-b
