#pragma once
// For the sources that hand the store on to c10d: LibTorch's headers cost seconds.

#include <torch/csrc/distributed/c10d/Store.hpp>

namespace funicular::comm {

struct Connection {
  c10::intrusive_ptr<c10d::Store> store;
};

}  // namespace funicular::comm
