"""The first half of an exported file: an ONNX graph from a picture of any size to the input of a network.

It resamples as Pillow does: first each row, then each column, both with weights of 22 bits, and both rounded
to whole gray levels. From version 13 on, Pillow takes the columns first where the height shrinks by more than
twice the pixels of the width; a file that such a version exports does too.
ONNX' own ``Resize`` knows no box of fractions of pixels. The columns of the result are made some at a time
(``Loop``), each from the pixels that it needs, so that a large photo takes little memory, and time in
proportion to its pixels. Numbers that depend on the size of the picture are computed in float64.
"""

from typing import TYPE_CHECKING

from shortlist.preprocessing import Preprocessing

if TYPE_CHECKING:
    from onnx import ModelProto

PICTURE, INPUTS = "picture", "inputs"
_BLOCK = 8  # columns or rows of the result that are made at a time
_COLUMNS_FIRST = 13  # version of Pillow from which on columns may come first
_SUPPORT = {"bilinear": 1.0, "bicubic": 2.0}
_GRAY = (19595, 38470, 7471)  # of 65,536: as Pillow turns RGB into gray levels


def picture_graph(preprocessing: Preprocessing, *, opset: int, ir_version: int) -> "ModelProto":
    """Return the graph of a preprocessing: ``picture`` uint8 (height, width, 3) to ``inputs`` (1, c, h, w).

    Args:
        preprocessing: What it does.
        opset: Version of the operators, 18 at least.
        ir_version: Version of the file format.
    """
    from onnx import checker, parser

    color, height, width = preprocessing.shape
    kind = "uint8" if preprocessing.pixels == "bytes" else "float"
    text = f"""
    <ir_version: {ir_version}, opset_import: ["" : {opset}]>
    picture (uint8[height, width, 3] {PICTURE}) => ({kind}[1, {color}, {height}, {width}] {INPUTS}) {{
        {_CONSTANTS}
        {_box(preprocessing)}
        {_weights("x", width, preprocessing)}
        {_weights("y", height, preprocessing)}
        {_passes(preprocessing)}
        {_normalized(preprocessing)}
    }}
    """
    model = parser.parse_model(text)
    checker.check_model(model, full_check=True)
    return model


_CONSTANTS = """
        zero = Constant <value = int64 {0}> ()
        one = Constant <value = int64 {1}> ()
        half = Constant <value = double {0.5}> ()
        shape = Shape (picture)
        rows = Gather (shape, zero)
        columns = Gather (shape, one)
        length_y = Cast <to = 11> (rows)
        length_x = Cast <to = 11> (columns)
"""


def _box(preprocessing: Preprocessing) -> str:
    """Return the part that says which box of the picture is resampled; its ends are float32 as in Pillow."""
    if preprocessing.resize is None:
        return "\n".join(
            f"""
        from_{axis} = Constant <value = double {{0.0}}> ()
        extent_{axis} = Identity (length_{axis})"""
            for axis in "xy"
        )
    lines = f"""
        resize = Constant <value = double {{{preprocessing.resize}.0}}> ()
        shorter = Min (length_x, length_y)
        two = Constant <value = double {{2.0}}> ()"""
    for axis, side in (("x", preprocessing.width), ("y", preprocessing.height)):
        lines += f"""
        side_{axis} = Constant <value = double {{{side}.0}}> ()
        scaled_{axis} = Mul (shorter, side_{axis})
        exact_{axis} = Div (scaled_{axis}, resize)
        spare_{axis} = Sub (length_{axis}, exact_{axis})
        start_{axis} = Div (spare_{axis}, two)
        end_{axis} = Add (start_{axis}, exact_{axis})
        start_{axis}_32 = Cast <to = 1> (start_{axis})
        end_{axis}_32 = Cast <to = 1> (end_{axis})
        extent_{axis}_32 = Sub (end_{axis}_32, start_{axis}_32)
        from_{axis} = Cast <to = 11> (start_{axis}_32)
        extent_{axis} = Cast <to = 11> (extent_{axis}_32)"""
    return lines


def _weights(axis: str, size: int, preprocessing: Preprocessing) -> str:
    """Return the part that finds, for blocks of the result, where their pixels begin, and their weights.

    ``first_x`` (blocks, 1) is the first pixel, ``window_x`` their number, ``weights_x`` (blocks, block,
    window).
    """
    method = preprocessing.interpolation or ("bicubic" if preprocessing.resize is None else "bilinear")
    return f"""
        {_windows(axis, size, method)}
        offsets_{axis} = Range (zero, window_{axis}, one)
        offset_{axis} = Cast <to = 11> (offsets_{axis})
        pixels_{axis} = Add (inside_{axis}, offset_{axis})
        middle_{axis} = Add (pixels_{axis}, half)
        axes_1_{axis} = Constant <value = int64[1] {{1}}> ()
        axes_2_{axis} = Constant <value = int64[1] {{2}}> ()
        pixel_{axis} = Unsqueeze (middle_{axis}, axes_1_{axis})
        target_{axis} = Unsqueeze (centers_{axis}, axes_2_{axis})
        apart_{axis} = Sub (pixel_{axis}, target_{axis})
        units_{axis} = Div (apart_{axis}, wide_{axis})
        t_{axis} = Abs (units_{axis})
        {_filter(axis, method)}
        total_{axis} = ReduceSum <keepdims = 1> (raw_{axis}, axes_2_{axis})
        shares_{axis} = Div (raw_{axis}, total_{axis})
        fine_{axis} = Constant <value = double {{4194304.0}}> ()
        large_{axis} = Mul (shares_{axis}, fine_{axis})
        nearer_{axis} = Add (large_{axis}, half)
        rounded_{axis} = Floor (nearer_{axis})
        exact_weights_{axis} = Div (rounded_{axis}, fine_{axis})
        weights_{axis} = Cast <to = 1> (exact_weights_{axis})
"""


def _windows(axis: str, size: int, method: str) -> str:
    """Return the part that finds ``first_x``, ``window_x`` and ``centers_x`` (blocks, block)."""
    blocks = -(-size // _BLOCK)
    places = ", ".join(f"{place + 0.5}" for place in range(blocks * _BLOCK))
    return f"""
        size_{axis} = Constant <value = double {{{size}.0}}> ()
        scale_{axis} = Div (extent_{axis}, size_{axis})
        unit_{axis} = Constant <value = double {{1.0}}> ()
        wide_{axis} = Max (scale_{axis}, unit_{axis})
        reach_{axis} = Constant <value = double {{{_SUPPORT[method]}}}> ()
        support_{axis} = Mul (wide_{axis}, reach_{axis})
        places_{axis} = Constant <value = double[{blocks}, {_BLOCK}] {{{places}}}> ()
        steps_{axis} = Mul (places_{axis}, scale_{axis})
        centers_{axis} = Add (steps_{axis}, from_{axis})
        block_{axis} = Constant <value = double {{{_BLOCK}.0}}> ()
        covered_{axis} = Mul (block_{axis}, scale_{axis})
        both_{axis} = Add (support_{axis}, support_{axis})
        needed_{axis} = Add (covered_{axis}, both_{axis})
        whole_{axis} = Ceil (needed_{axis})
        spared_{axis} = Add (whole_{axis}, unit_{axis})
        wanted_{axis} = Min (spared_{axis}, length_{axis})
        window_{axis} = Cast <to = 7> (wanted_{axis})
        one_place_{axis} = Constant <value = int64[1] {{0}}> ()
        center_{axis} = Gather <axis = 1> (centers_{axis}, one_place_{axis})
        lowest_{axis} = Sub (center_{axis}, support_{axis})
        floor_{axis} = Floor (lowest_{axis})
        none_{axis} = Constant <value = double {{0.0}}> ()
        last_{axis} = Sub (length_{axis}, wanted_{axis})
        begin_{axis} = Max (floor_{axis}, none_{axis})
        inside_{axis} = Min (begin_{axis}, last_{axis})
        first_{axis} = Cast <to = 7> (inside_{axis})
"""


def _filter(axis: str, method: str) -> str:
    """Return the part that makes ``raw_x``, the filter at the distances ``t_x``."""
    if method == "bilinear":
        return f"""
        falling_{axis} = Sub (unit_{axis}, t_{axis})
        raw_{axis} = Max (falling_{axis}, none_{axis})"""
    values = {"c15": 1.5, "c25": 2.5, "c5": 5.0, "c8": 8.0, "c4": 4.0, "minus_half": -0.5}
    lines = "".join(
        f"\n        {name}_{axis} = Constant <value = double {{{value}}}> ()"
        for name, value in values.items()
    )
    return f"""{lines}
        near_1_{axis} = Mul (c15_{axis}, t_{axis})
        near_2_{axis} = Sub (near_1_{axis}, c25_{axis})
        near_3_{axis} = Mul (near_2_{axis}, t_{axis})
        near_4_{axis} = Mul (near_3_{axis}, t_{axis})
        near_{axis} = Add (near_4_{axis}, unit_{axis})
        far_1_{axis} = Sub (t_{axis}, c5_{axis})
        far_2_{axis} = Mul (far_1_{axis}, t_{axis})
        far_3_{axis} = Add (far_2_{axis}, c8_{axis})
        far_4_{axis} = Mul (far_3_{axis}, t_{axis})
        far_5_{axis} = Sub (far_4_{axis}, c4_{axis})
        far_{axis} = Mul (far_5_{axis}, minus_half_{axis})
        is_near_{axis} = Less (t_{axis}, unit_{axis})
        is_far_{axis} = Less (t_{axis}, reach_{axis})
        beyond_{axis} = Where (is_far_{axis}, far_{axis}, none_{axis})
        raw_{axis} = Where (is_near_{axis}, near_{axis}, beyond_{axis})"""


def _passes(preprocessing: Preprocessing) -> str:
    """Return the part that makes ``resampled`` (height, width, channels) of the picture."""
    import PIL

    gray, sizes = preprocessing.color == "L", {"x": preprocessing.width, "y": preprocessing.height}
    rows_first = f"""
            {_pass("x", PICTURE, 1, "swapped", sizes["x"], gray)}
            {_pass("y", "swapped", 1, "resampled_rows_first", sizes["y"], False)}"""
    if int(PIL.__version__.partition(".")[0]) < _COLUMNS_FIRST:
        return f"{rows_first}\n        resampled = Identity (resampled_rows_first)"
    columns_first = f"""
            {_pass("y", PICTURE, 0, "lower", sizes["y"], gray)}
            {_pass("x", "lower", 1, "turned", sizes["x"], False)}
            resampled_columns_first = Transpose <perm = [1, 0, 2]> (turned)"""
    channels = preprocessing.shape[0]
    made = f"uint8[{sizes['y']}, {sizes['x']}, {channels}]"
    return f"""
        wanted_rows = Constant <value = int64 {{{sizes["y"]}}}> ()
        wanted_columns = Constant <value = int64 {{{sizes["x"]}}}> ()
        spare_rows = Sub (rows, wanted_rows)
        spare_columns = Sub (columns, wanted_columns)
        twice_columns = Add (spare_columns, spare_columns)
        is_lower = Greater (spare_rows, zero)
        is_much_lower = Greater (spare_rows, twice_columns)
        takes_columns_first = And (is_lower, is_much_lower)
        resampled = If (takes_columns_first) <
            then_branch = columns_first () => ({made} resampled_columns_first) {{{columns_first}
            }},
            else_branch = rows_first () => ({made} resampled_rows_first) {{{rows_first}
            }}
        >
"""


def _pass(axis: str, source: str, along: int, result: str, size: int, gray: bool) -> str:
    """Return the part that resamples axis 1 of (a, b, channels), to (size, a, channels) of whole numbers.

    With ``along`` 0, axis 0, to (size, b, channels).
    """
    blocks = -(-size // _BLOCK)
    return f"""
        blocks_{axis} = Constant <value = int64 {{{blocks}}}> ()
        always_{axis} = Constant <value = bool {{1}}> ()
        stacked_{axis} = Loop (blocks_{axis}, always_{axis}) <body = resample_{axis}
            (int64 number_{axis}, bool goes_{axis}) => (bool goes_on_{axis}, uint8[a, b, d] made_{axis}) {{
            goes_on_{axis} = Identity (goes_{axis})
            {_block(axis, source, along, gray)}
        }}>
        stacked_shape_{axis} = Shape (stacked_{axis})
        tail_from_{axis} = Constant <value = int64[1] {{2}}> ()
        tail_to_{axis} = Constant <value = int64[1] {{4}}> ()
        tail_{axis} = Slice (stacked_shape_{axis}, tail_from_{axis}, tail_to_{axis})
        all_{axis} = Constant <value = int64[1] {{{blocks * _BLOCK}}}> ()
        joined_shape_{axis} = Concat <axis = 0> (all_{axis}, tail_{axis})
        joined_{axis} = Reshape (stacked_{axis}, joined_shape_{axis})
        cut_from_{axis} = Constant <value = int64[1] {{0}}> ()
        cut_to_{axis} = Constant <value = int64[1] {{{size}}}> ()
        {result} = Slice (joined_{axis}, cut_from_{axis}, cut_to_{axis}, cut_from_{axis})
"""


def _gray_levels(axis: str) -> str:
    """Return the part that makes ``levels_x`` of ``numbers_x`` (a, b, 3), as Pillow turns RGB into gray."""
    return f"""
            channels_{axis} = Constant <value = float[3] {{{", ".join(f"{part}.0" for part in _GRAY)}}}> ()
            shares_of_{axis} = Mul (numbers_{axis}, channels_{axis})
            colors_{axis} = Constant <value = int64[1] {{2}}> ()
            sums_{axis} = ReduceSum <keepdims = 1> (shares_of_{axis}, colors_{axis})
            round_up_{axis} = Constant <value = float {{32768.0}}> ()
            raised_{axis} = Add (sums_{axis}, round_up_{axis})
            parts_{axis} = Constant <value = float {{65536.0}}> ()
            divided_{axis} = Div (raised_{axis}, parts_{axis})
            levels_{axis} = Floor (divided_{axis})"""


def _block(axis: str, source: str, along: int, gray: bool) -> str:
    """Return the part that makes a block ``made_x`` of the result from the pixels that it needs."""
    levels = _gray_levels(axis) if gray else f"levels_{axis} = Identity (numbers_{axis})"
    return f"""
            start_of_{axis} = Gather <axis = 0> (first_{axis}, number_{axis})
            end_of_{axis} = Add (start_of_{axis}, window_{axis})
            axis_{axis} = Constant <value = int64[1] {{{along}}}> ()
            bytes_{axis} = Slice ({source}, start_of_{axis}, end_of_{axis}, axis_{axis})
            ahead_{axis} = Transpose <perm = {[along, 1 - along, 2]}> (bytes_{axis})
            numbers_{axis} = Cast <to = 1> (ahead_{axis})
            {levels}
            level_shape_{axis} = Shape (levels_{axis})
            flat_{axis} = Flatten <axis = 1> (levels_{axis})
            weights_of_{axis} = Gather <axis = 0> (weights_{axis}, number_{axis})
            mixed_{axis} = MatMul (weights_of_{axis}, flat_{axis})
            half_{axis} = Constant <value = float {{0.5}}> ()
            above_{axis} = Add (mixed_{axis}, half_{axis})
            floored_{axis} = Floor (above_{axis})
            least_{axis} = Constant <value = float {{0.0}}> ()
            most_{axis} = Constant <value = float {{255.0}}> ()
            clipped_{axis} = Clip (floored_{axis}, least_{axis}, most_{axis})
            whole_levels_{axis} = Cast <to = 2> (clipped_{axis})
            from_1_{axis} = Constant <value = int64[1] {{1}}> ()
            to_3_{axis} = Constant <value = int64[1] {{3}}> ()
            from_0_{axis} = Constant <value = int64[1] {{0}}> ()
            rest_{axis} = Slice (level_shape_{axis}, from_1_{axis}, to_3_{axis}, from_0_{axis})
            block_rows_{axis} = Constant <value = int64[1] {{{_BLOCK}}}> ()
            made_shape_{axis} = Concat <axis = 0> (block_rows_{axis}, rest_{axis})
            made_{axis} = Reshape (whole_levels_{axis}, made_shape_{axis})
"""


def _normalized(preprocessing: Preprocessing) -> str:
    """Return the part from (height, width, channels) of bytes to ``inputs``."""
    lines = """
        channels_first = Transpose <perm = [2, 0, 1]> (resampled)
        picture_axis = Constant <value = int64[1] {0}> ()
        pixels = Unsqueeze (channels_first, picture_axis)"""
    if preprocessing.pixels == "bytes":
        return f"{lines}\n        {INPUTS} = Identity (pixels)"
    channels, largest = preprocessing.shape[0], 255.0 if preprocessing.pixels == "unit" else 1.0
    mean, std = (", ".join(map(str, values)) for values in (preprocessing.mean, preprocessing.std))
    return f"""{lines}
        numbers = Cast <to = 1> (pixels)
        largest = Constant <value = float {{{largest}}}> ()
        scaled = Div (numbers, largest)
        mean = Constant <value = float[{channels}, 1, 1] {{{mean}}}> ()
        std = Constant <value = float[{channels}, 1, 1] {{{std}}}> ()
        centered = Sub (scaled, mean)
        {INPUTS} = Div (centered, std)"""
