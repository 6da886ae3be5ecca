#pragma once
// From tensors to the arguments of kernels, on the processor and on a GPU.

#include "funicular/nn/row_operations.h"
#include "funicular/nn/typed.h"

namespace funicular::nn {

/// Weights, dropout and its keys, of rows of `width`; begin and end are left at 0.
template <class S>
NormArguments<S> norm_arguments(const NormCall& call, const at::Tensor& gamma, const at::Tensor& beta,
                                int64_t width) {
  NormArguments<S> a;
  a.width = width;
  a.gamma = data<Compute<S>>(gamma);
  a.beta = data<Compute<S>>(beta);
  a.epsilon = call.epsilon;
  a.dropout = call.dropout;
  a.output_dropout = call.output_dropout;
  if (call.dropout.threshold != 0 || call.output_dropout.threshold != 0) {
    a.positions = call.positions.data_ptr<int32_t>();
    a.draws = call.draws.data_ptr<int64_t>();
  }
  return a;
}

template <class S>
void write_to(const NormResult& result, NormArguments<S>& a) {
  a.sum = data<S>(result.sum);
  a.mean = data<Compute<S>>(result.mean);
  a.inverse_deviation = data<Compute<S>>(result.inverse_deviation);
  a.output = data<S>(result.output);
}

/// The arguments of a normalisation whose input is looked up in tables.
template <class S>
EmbeddingArguments<S> embedding_arguments(const LookedUp& rows, const at::Tensor& gamma,
                                          const at::Tensor& beta, const NormCall& call,
                                          const NormResult& result) {
  EmbeddingArguments<S> e;
  e.norm = norm_arguments<S>(call, gamma, beta, rows.word.size(1));
  write_to(result, e.norm);
  e.word = data<S>(rows.word);
  e.position = data<S>(rows.position);
  e.type = data<S>(rows.type);
  e.position_rows = rows.positions.data_ptr<int32_t>();
  e.ids = rows.ids.data_ptr<int64_t>();
  e.types = rows.types.data_ptr<int64_t>();
  return e;
}

/// All rows of x [N, 2I]; `bias` may be undefined.
template <class S>
GatedArguments<S> gated_arguments(const at::Tensor& x, const at::Tensor& bias, Activation activation) {
  GatedArguments<S> a;
  a.activation = activation;
  a.end = x.size(0);
  a.width = x.size(1) / 2;
  a.input = data<S>(x);
  a.bias = data<Compute<S>>(bias);
  return a;
}

}  // namespace funicular::nn
