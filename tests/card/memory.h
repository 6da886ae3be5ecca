#pragma once
// The memory of a card's stand-in. It lies at two addresses: the host's, and the card's, which only kernels may use.

#include <cstddef>

namespace funicular::card {

/// From now on new tensors of the processor lie in this memory, so that tensors of the card can be made of them.
void use_memory();

/// The card's address of the host's `memory`; `memory` itself if it lies elsewhere.
void* card_address(void* memory);

/// While it lives, the card's addresses can be used, by every thread. Otherwise they end the process: on a card the host
/// cannot reach them.
class Access {
 public:
  Access();
  ~Access();
  Access(const Access&) = delete;
  Access& operator=(const Access&) = delete;
};

}  // namespace funicular::card
