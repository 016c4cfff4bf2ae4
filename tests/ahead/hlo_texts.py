"""Programs as compilers print them, cut down to what is read."""

import pathlib

HERE = pathlib.Path(__file__).parent

# A loop of 3 turns inside one of 5, of the TPU's form: nothing says how often, but the comparison.
NESTED = (HERE / "nested.hlo").read_text()

# The same inner loop as the CPU prints it: the comparison is not read.
KNOWN = NESTED.replace(
    "body=%inner_body", 'body=%inner_body, backend_config={"known_trip_count":{"n":"11"}}'
)

# The counter runs to a number that is given at run time.
UNKNOWN = NESTED.replace(
    "%end = s32[] constant(9)", "%end = s32[] get-tuple-element(%q.1), index=0"
)

# Collectives in all the forms in which groups are written; 8 devices.
FORMS = (HERE / "forms.hlo").read_text()
