#include "funicular/runtime/product_cache.h"

#include <cstdlib>

namespace funicular {

void limit_product_cache() {
  constexpr int kKeep = 0;  // what the environment says already holds
  ::setenv("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "64", kKeep);
  ::setenv("LRU_CACHE_CAPACITY", "64", kKeep);  // of ideep, LibTorch's layer above oneDNN
}

}  // namespace funicular
