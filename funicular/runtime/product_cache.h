#pragma once
// How many prepared matrix products LibTorch's oneDNN keeps.

namespace funicular {

/// oneDNN prepares each 16-bit product of a new shape, and keeps 1024 of them, half a megabyte each. Steps
/// over ragged rows have new shapes all the time, so that the memory grows for hours. From now on it keeps 64
/// (about three steps'), which costs nothing: within a step every layer has the same shapes. To be called
/// before the first product of the process, as Trainer::fit and the program do. The environment's
/// ONEDNN_PRIMITIVE_CACHE_CAPACITY and LRU_CACHE_CAPACITY have precedence.
void limit_product_cache();

}  // namespace funicular
