#include "funicular/cli/generator_options.h"

#include "funicular/base/error.h"
#include "funicular/base/log.h"

namespace funicular::cli {

namespace {

constexpr const char* kRandomGenerator = "random";

void require_new_generator(const Arguments& arguments, const fs::path& generator) {
  for (const char* option : {"generator-size", "generator-layers"})
    if (arguments.given(option))
      throw InputError(
          "usage",
          "--{} is for a new generator, and {} has its own size; leave it out, or give --generator random",
          option, generator.string());
}

}  // namespace

void GeneratorOptions::declare(Arguments& arguments) {
  arguments
      .add("generator", "DIR|random", generator, Effect::input_or_name,
           "with --objective electra: folder of the generator to continue with; random: a new one")
      .takes_model()
      .default_text("generator in the model's folder, else random");
  arguments
      .add("generator-size", "SHARE", electra.generator_size, Effect::result,
           "with --objective electra: a new generator's hidden size, as a share of the model's")
      .above(0);
  arguments
      .add("generator-layers", "N", electra.generator_layers, Effect::result,
           "with --objective electra: a new generator's layers")
      .range(1)
      .default_text("as many as the model's");
  arguments
      .add("discriminator-weight", "W", electra.weight, Effect::result,
           "with --objective electra: factor of the model's loss; the generator's loss counts once")
      .above(0);
  arguments.add("keep-generator", electra.keep_generator, Effect::result,
                "with --objective electra: leave the generator in RUN/model/generator, too");
}

void GeneratorOptions::refuse_for(const std::string& objective, const Arguments& arguments) const {
  if (objective == "electra") return;
  for (const char* option :
       {"generator", "generator-size", "generator-layers", "discriminator-weight", "keep-generator"})
    if (arguments.given(option))
      throw InputError("usage", "--{} is for --objective electra; the objective is {}", option, objective);
}

void GeneratorOptions::choose(const Arguments& arguments, const model::Pretrained& pretrained,
                              bool starts_anew) {
  const bool given = !generator.empty();
  if (generator == kRandomGenerator) return;
  const fs::path& model = pretrained.path();
  if (given && !pretrained.has_weights())
    throw InputError(
        "usage",
        "--generator {} reads the embeddings of the model, and {} has no weights; give the folder of the "
        "model that it was trained with, or --generator random",
        generator.string(), model.string());
  if (given)
    electra.generator = generator;
  else if (pretrained.has_weights() && fs::exists(model / model::kGeneratorFolder / "config.json"))
    electra.generator = model / model::kGeneratorFolder;
  if (electra.generator.empty()) return;
  require_new_generator(arguments, electra.generator);
  if (!given && starts_anew)
    log::info("going on with the generator in {}; --generator random begins a new one",
              electra.generator.string());
}

}  // namespace funicular::cli
