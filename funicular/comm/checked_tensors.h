#pragma once
// Checks the tensors, reduction, ranks and pieces of a collective before anything is sent.

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <string>
#include <vector>

#include "funicular/comm/combine.h"
#include "funicular/comm/shard.h"

namespace funicular::comm {

// `operation` is the collective's name, for messages. All throw InputError.

/// The type of its numbers. Throws unless it is a contiguous tensor of a type that can be reduced. The device is
/// checked by Transport::carrier.
Element check_tensor(const char* operation, const at::Tensor& tensor);
/// Throws for an average of whole numbers.
void check_reduction(const char* operation, Element element, Reduction reduction);
/// Throws unless it is one of `size` ranks.
void check_rank(const char* operation, int rank, int size);
/// Throws unless there are `size` pieces that cover the tensor in order.
void check_pieces(const char* operation, const at::Tensor& tensor, const std::vector<Shard>& pieces,
                  int size);

// Facts that all ranks must state alike about one collective.

std::string describe(const char* operation, const at::Tensor& tensor, const std::string& more = {});
std::string describe_pieces(const std::vector<Shard>& pieces);
const char* name_of(Reduction reduction);

// For tensors that have been checked.

Element element_of(const at::Tensor& tensor);
/// The memory of a tensor, for transports that read it themselves or name it to a library.
std::byte* bytes(const at::Tensor& tensor);

}  // namespace funicular::comm
