#include "funicular/format/sequence_files.h"

#include <algorithm>
#include <utility>

#include "funicular/base/error.h"
#include "funicular/format/tokenizer_json.h"
#include "funicular/text/tokenizer.h"

namespace funicular::format {
namespace {

using text::SequenceTemplate;
using Step = SequenceTemplate::Step;

int32_t id_of(const std::string& token, const std::vector<std::string>& tokens, const std::string& origin) {
  const auto found = std::find(tokens.begin(), tokens.end(), token);
  if (found == tokens.end())
    throw InputError(
        text::kTokenizerComponent,
        "{}: the special token \"{}\", which sequences need, is not in the vocabulary; add it, or name "
        "the right one in tokenizer_config.json",
        origin, token);
  return static_cast<int32_t>(found - tokens.begin());
}

// The post-processor states the ids of its tokens. The library tokenizers uses these ids even if the vocabulary
// differs, so this throws InputError for a difference.
void check_id(const std::string& token, const Json& stated, int32_t own, const std::string& origin) {
  if (!json_holds<int32_t>(stated) || stated.get<int32_t>() != own)
    throw InputError(text::kTokenizerComponent,
                     "{}: the post-processor gives \"{}\" the id {}, the vocabulary {}", origin, token,
                     stated.dump().substr(0, 80), own);
}

SequenceTemplate template_of(const std::string& cls, const std::string& sep,
                             const std::vector<std::string>& tokens, const std::string& origin,
                             bool roberta) {
  const int32_t first = id_of(cls, tokens, origin), last = id_of(sep, tokens, origin);
  if (!roberta) return SequenceTemplate::bert(cls, first, sep, last);
  const std::vector<Step> single{Step::special(first, 0), Step::text(0, 0), Step::special(last, 0)};
  std::vector<Step> pair = single;
  pair.insert(pair.end(), {Step::special(last, 0), Step::text(1, 0), Step::special(last, 0)});
  return {single, pair};
}

// RobertaProcessing and BertProcessing.
void read_fixed(const Json& part, const std::vector<std::string>& tokens, const std::string& origin,
                SequenceFile& out) {
  const bool roberta = found_type(part) == "RobertaProcessing";
  const auto token = [&](const char* key) {
    const auto [name, id] = json_get<std::pair<std::string, Json>>(part, key, origin);
    check_id(name, id, id_of(name, tokens, origin), origin);
    return name;
  };
  out.cls = token("cls");
  out.sep = token("sep");
  out.sequence = template_of(out.cls, out.sep, tokens, origin, roberta);
}

// Returns the ids of a template's special token. "special_tokens" may list several tokens under one name; each
// listed id must be the id of its token.
std::vector<int32_t> ids_in(const Json& part, const std::string& name, const std::vector<std::string>& tokens,
                            const std::string& origin) {
  const Json all = json_get<Json>(part, "special_tokens", origin);
  const Json entry = json_get<Json>(all, name.c_str(), origin);
  const Json ids = json_get<Json>(entry, "ids", origin), names = json_get<Json>(entry, "tokens", origin);
  if (!ids.is_array() || !names.is_array() || ids.size() != names.size() || ids.empty())
    throw InputError(text::kTokenizerComponent,
                     "{}: the post-processor's token \"{}\" has the ids {} and the tokens {}", origin, name,
                     ids.dump().substr(0, 80), names.dump().substr(0, 80));
  std::vector<int32_t> result;
  for (size_t i = 0; i < ids.size(); ++i) {
    if (!names[i].is_string())
      throw InputError(text::kTokenizerComponent, "{}: a token of the post-processor is {}", origin,
                       names[i].dump().substr(0, 80));
    result.push_back(id_of(names[i].get<std::string>(), tokens, origin));
    check_id(names[i].get<std::string>(), ids[i], result.back(), origin);
  }
  return result;
}

std::vector<Step> read_steps(const Json& part, const char* key, const std::vector<std::string>& tokens,
                             const std::string& origin) {
  const auto list = part.find(key);
  if (list == part.end() || !list->is_array())
    throw InputError(text::kTokenizerComponent, "{}: the post-processor has no list \"{}\"", origin, key);
  std::vector<Step> steps;
  for (const Json& item : *list) {
    int type = 0;
    const std::string name = template_step(item, type, origin);
    if (type < 0)
      throw InputError(text::kTokenizerComponent,
                       "{}: the post-processor's \"{}\" has the token type {}; expected 0 or more", origin,
                       key, type);
    if (name == "$A" || name == "$B") {
      steps.push_back(Step::text(name == "$B", type));
    } else {
      for (const int32_t id : ids_in(part, name, tokens, origin)) steps.push_back(Step::special(id, type));
    }
  }
  return steps;
}

void read_template(const Json& part, const std::vector<std::string>& tokens, const std::string& origin,
                   SequenceFile& out) {
  const std::vector<Step> single = read_steps(part, "single", tokens, origin);
  out.sequence = SequenceTemplate(single, read_steps(part, "pair", tokens, origin));
  const auto name = [&](const Step& step) {
    return step.column < 0 ? tokens[static_cast<size_t>(step.token)] : "";
  };
  out.cls = name(single.front());
  out.sep = name(single.back());
}

void read_trim(const Json& part, const std::string& origin, SequenceFile& out) {
  out.trim_offsets = json_get_or(part, "trim_offsets", true, origin);
  out.trim_keeps_prefix = json_get_or(part, "add_prefix_space", true, origin);
}

void read_one(const Json& part, const std::vector<std::string>& tokens, const std::string& origin,
              SequenceFile& out) {
  const std::string type = found_type(part);
  if (type == "TemplateProcessing") return read_template(part, tokens, origin, out);
  if (type != "BertProcessing") read_trim(part, origin, out);
  if (type != "ByteLevel") read_fixed(part, tokens, origin, out);
}

// The steps of a Sequence: at most one that trims offsets, and one that adds tokens.
void read_list(const Json& part, const std::vector<std::string>& tokens, const std::string& origin,
               SequenceFile& out) {
  const auto list = part.find("processors");
  if (list == part.end() || !list->is_array())
    throw InputError(text::kTokenizerComponent, "{}: the post-processor has no list \"processors\"", origin);
  int trims = 0, templates = 0;
  for (const Json& one : *list) {
    const std::string type = found_type(one);
    if (type != "ByteLevel" && type != "TemplateProcessing")
      throw InputError(text::kTokenizerComponent,
                       "{}: the post-processor has the step {}; supported in a Sequence: ByteLevel and "
                       "TemplateProcessing, once each",
                       origin, type);
    ++(type == "ByteLevel" ? trims : templates);
    read_one(one, tokens, origin, out);
  }
  if (trims > 1 || templates > 1)
    throw InputError(text::kTokenizerComponent, "{}: the post-processor has the same step twice: {}", origin,
                     list->dump().substr(0, 200));
}

}  // namespace

SequenceFile read_sequence(const Json& root, const std::vector<std::string>& tokens,
                           const std::string& origin) {
  const Json& part =
      part_of(root, "post_processor",
              {"RobertaProcessing", "BertProcessing", "TemplateProcessing", "ByteLevel", "Sequence", "none"},
              origin, "tokenizers of GPT-2, RoBERTa, ModernBERT");
  SequenceFile out;
  const std::string type = found_type(part);
  if (type == "Sequence")
    read_list(part, tokens, origin, out);
  else if (type != "none")
    read_one(part, tokens, origin, out);
  return out;
}

SequenceTemplate roberta_sequence(const std::string& cls, const std::string& sep,
                                  const std::vector<std::string>& tokens, const std::string& origin) {
  return template_of(cls, sep, tokens, origin, true);
}

SequenceTemplate bert_sequence(const std::string& cls, const std::string& sep,
                               const std::vector<std::string>& tokens, const std::string& origin) {
  return template_of(cls, sep, tokens, origin, false);
}

OrderedJson sequence_json(const text::Tokenizer& tokenizer, OffsetTrim options) {
  const SequenceTemplate& sequence = tokenizer.sequence();
  const auto token = [&](int32_t id) { return tokenizer.vocabulary()[static_cast<size_t>(id)]; };
  const OrderedJson trim{{"type", "ByteLevel"},
                         {"add_prefix_space", options.keeps_prefix},
                         {"trim_offsets", options.trims},
                         {"use_regex", true}};
  if (sequence == SequenceTemplate()) return options.trims ? trim : OrderedJson();
  const auto first = sequence.steps(1).front(), last = sequence.steps(1).back();
  if (first.column < 0 && last.column < 0) {
    const std::vector<std::string> tokens = tokenizer.vocabulary();
    if (sequence == roberta_sequence(token(first.token), token(last.token), tokens, ""))
      return {{"type", "RobertaProcessing"},
              {"sep", {token(last.token), last.token}},
              {"cls", {token(first.token), first.token}},
              {"trim_offsets", options.trims},
              {"add_prefix_space", options.keeps_prefix}};
  }
  OrderedJson tokens = OrderedJson::object();
  const auto steps_json = [&](int columns) {
    OrderedJson list = OrderedJson::array();
    for (const Step& step : sequence.steps(columns)) {
      if (step.column >= 0) {
        list.push_back(step_json("Sequence", step.column == 0 ? "A" : "B", step.type));
        continue;
      }
      const std::string name = token(step.token);
      list.push_back(step_json("SpecialToken", name, step.type));
      tokens[name] = {{"id", name}, {"ids", {step.token}}, {"tokens", {name}}};
    }
    return list;
  };
  OrderedJson single = steps_json(1), pair = steps_json(2);
  const OrderedJson steps{
      {"type", "TemplateProcessing"}, {"single", single}, {"pair", pair}, {"special_tokens", tokens}};
  if (!options.trims) return steps;
  return {{"type", "Sequence"}, {"processors", {trim, steps}}};
}

}  // namespace funicular::format
