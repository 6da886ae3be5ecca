#pragma once
// Sizes of students for distillation, and their initialisation from a teacher's layers.

#include <cstdint>
#include <string>
#include <vector>

#include "funicular/model/pretrained.h"

namespace funicular::model {

/// tinybert4 (4 layers of 312, inner size 1200, 12 heads), tinybert6 (6 of 768, 3072, 12): Jiao et al. 2020, section
/// 4.2; minilm6 (6 of 384, 1536, 12): Wang et al. 2020.
const std::vector<std::string>& student_names();

/// Returns the teacher's configuration with the sizes of `name`, or for a name such as 3-layers with that many
/// layers. Throws InputError for another name, and suggests the nearest.
format::ModelConfig student_config(const std::string& name, const format::ModelConfig& teacher);

/// Returns the teacher's layers, from 1, that initialise a student's layers. `text`: "even" (i · N / M for i = 1 … M,
/// rounded down), or comma-separated numbers, one per student layer. Throws InputError for other texts.
std::vector<int64_t> parse_init_layers(const std::string& text, int64_t student_layers,
                                       int64_t teacher_layers);

/// Throws InputError if the student's layers differ in size from the teacher's (`theirs`), so that they cannot be
/// copied.
void check_init_sizes(const format::ModelConfig& config, const format::ModelConfig& theirs);

/// Gives each student layer the attention settings of the teacher's layer that initialises it.
void take_layer_attention(format::ModelConfig& student, const format::ModelConfig& teacher,
                          const std::vector<int64_t>& layers);

/// Compares each student layer with the teacher's layer that initialises it. Throws InputError if their attention
/// differs, or if the teacher's layer lacks a norm. Warns if the teacher's layer has an extra norm.
void check_init_layers(const format::ModelConfig& student, const format::ModelConfig& teacher,
                       const std::vector<int64_t>& layers);

/// Checks sizes and attention. A student without its own config.json first takes the attention settings of the
/// layers.
void prepare_init_layers(format::ModelConfig& student, const format::ModelConfig& teacher,
                         const std::vector<int64_t>& layers, bool own_config);

/// Copies the teacher's embeddings, `layers`, and the head (if both have it) into a student. Throws InputError if
/// their sizes differ.
void load_layers(Model& student, const format::ModelConfig& config, const Pretrained& teacher,
                 const std::vector<int64_t>& layers);

}  // namespace funicular::model
