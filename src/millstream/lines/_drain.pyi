"""What the compiled module offers: the same as `_drain_pure`."""

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

NAME: str

class Miner:
    def __init__(self, templates_max: int) -> None: ...
    def add(self, messages: pa.StringArray) -> NDArray[np.int32]: ...
    def texts(self, start: int = 0) -> list[str]: ...
