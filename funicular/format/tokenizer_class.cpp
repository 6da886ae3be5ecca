#include "funicular/format/tokenizer_class.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <utility>

#include "funicular/base/error.h"
#include "funicular/base/log.h"
#include "funicular/format/family.h"
#include "funicular/text/tokenizer.h"

namespace funicular::format {
namespace {

struct Kin {
  TokenizerRules rules;
  const char* name;        ///< of the class that stands for all
  std::string_view names;  ///< of the classes that do the same, without "Tokenizer" and "TokenizerFast"
  std::string_view types;  ///< values of "model_type" whose tokenizer it is
};

/// Classes and models that families() (format/family.h) does not list.
constexpr std::array<Kin, 5> kKin = {{
    {TokenizerRules::bert, "BertTokenizer",
     " ConvBert DPRContextEncoder DPRQuestionEncoder DPRReader LayoutLM Lxmert MobileBert "
     "SqueezeBert ",
     " convbert ernie layoutlm lxmert megatron-bert mobilebert nezha qdqbert "
     "realm retribert squeezebert visual_bert "},
    {TokenizerRules::roberta, "RobertaTokenizer", " Bart LED Longformer Mvp ",
     " roberta-prelayernorm bart data2vec-text ibert led lilt longformer mega mra mvp "},
    {TokenizerRules::mpnet, "MPNetTokenizer", "", ""},
    {TokenizerRules::gpt2, "GPT2Tokenizer", " GPT2 ", " gpt2 gpt_neo gptj codegen opt "},
    // The files hold, although transformers 5 ignores some of their rules (docs/reference/tokenizers.md).
    {TokenizerRules::file, "",
     " Albert Barthez BigBird Camembert DebertaV2 Gemma Llama MBart Pegasus RemBert T5 XLMRoberta ",
     " albert barthez big_bird camembert deberta-v2 mbart pegasus rembert t5 mt5 xlm-roberta "
     "xlm-roberta-xl "},
}};

/// Classes of transformers 5 with rules of their own, without "Tokenizer".
constexpr std::string_view kOthers =
    " Bartpho BertGeneration BertJapanese BertLegacy Bertweet BioGpt Blenderbot "
    "BlenderbotSmall ByT5 CLIP CTRL Canine Character Clvp CodeGen CodeLlama Cohere Cpm CpmAnt "
    "Deberta "
    "Dia Esm Esmc FSMT FastSpeech2Conformer Flaubert Funnel GPTNeoX GPTNeoXJapanese GPTSw3 "
    "Herbert Lasr LayoutLMv2 LayoutLMv3 LayoutXLM Luke M2M100 MBart50 MLuke Marian "
    "MarkupLM "
    "Mecab Mgpstr MyT5 Nllb Nougat OpenAIGPT PLBart Perceiver Phobert Pop2Piano ProphetNet Qwen2 "
    "Qwen3_5 "
    "Rag Reformer RoCBert RoFormer SeamlessM4T Siglip Siglip2 Speech2Text SpeechT5 Splinter Tapas "
    "Tipsv2 Udop VideoPrism Vits Wav2Vec2CTC Wav2Vec2PhonemeCTC Whisper XGLM XLM XLNet ";

bool lists(std::string_view words, const std::string& word) {
  return !word.empty() && words.find(" " + word + " ") != words.npos;
}

/// The rules of a class, given without "Tokenizer", or of a model (`by_type`). Null: it has rules of its own.
const Kin* kin_of(bool by_type, const std::string& name) {
  std::optional<TokenizerRules> rules;
  for (const Family& family : families())
    if (name == (by_type ? family.model_type : family.classes)) rules = family.tokenizer;
  for (const Kin& one : kKin)
    if (rules ? one.rules == *rules : lists(by_type ? one.types : one.names, name)) return &one;
  return nullptr;
}

std::string without(std::string name, std::string_view ending) {
  if (name.ends_with(ending)) name.resize(name.size() - ending.size());
  return name;
}

/// config.json, or an empty object where there is none that can be read: its reader is another.
Json model_config(const fs::path& folder) {
  const fs::path path = folder / "config.json";
  std::error_code ignored;
  if (!fs::is_regular_file(path, ignored)) return Json::object();
  Json config = parse_json_or_null(read_file(path));
  return config.is_object() ? config : Json::object();
}

std::string text_at(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

[[noreturn]] void refuse(const std::string& name, const std::string& origin, const char* why) {
  throw InputError(
      text::kTokenizerComponent,
      "{}: \"tokenizer_class\" is {}, which {}. Expected the class of a WordPiece tokeniser "
      "(BertTokenizer, DistilBertTokenizer, MPNetTokenizer), of a byte-level BPE "
      "(RobertaTokenizer, GPT2Tokenizer), or of SentencePiece (XLMRobertaTokenizer, AlbertTokenizer). "
      "PreTrainedTokenizerFast with a tokenizer.json is also read. Take another model, or convert its "
      "tokeniser "
      "with transformers",
      origin, name, why);
}

/// A Japanese model of transformers before 3 names no class, but its steps.
void refuse_other_steps(const Json& config, const std::string& origin) {
  for (const auto& [key, own] :
       {std::pair{"word_tokenizer_type", "basic"}, std::pair{"subword_tokenizer_type", "wordpiece"}}) {
    const std::string found = text_at(config, key);
    if (!found.empty() && found != own)
      throw InputError(text::kTokenizerComponent,
                       "{}: \"{}\" is \"{}\", a step of BertJapaneseTokenizer, which is not implemented; "
                       "expected \"{}\"; take a model that needs no other program to find words",
                       origin, key, found, own);
  }
}

/// Refuses settings that change the tokens of a text, whatever the class.
void refuse_other_matching(const Json& config, const std::string& origin) {
  if (json_get_or(config, "split_special_tokens", false, origin))
    throw InputError(
        text::kTokenizerComponent,
        "{}: \"split_special_tokens\" is true, which is not implemented; expected false: special "
        "tokens in a text are found whole",
        origin);
  if (text_at(config, "truncation_side") == "left")
    log::warning(
        "{}: \"truncation_side\" is left, which is not implemented; texts that are too long lose their end",
        origin);
}

}  // namespace

TokenizerClass tokenizer_class_of(const fs::path& folder, const Json& config, const std::string& origin) {
  refuse_other_matching(config, origin);
  const Json model = model_config(folder);
  std::string name = text_at(config, "tokenizer_class"), from = origin;
  if (name.empty()) name = text_at(model, "tokenizer_class"), from = (folder / "config.json").string();
  const std::string type = text_at(model, "model_type");
  const std::string kin = without(without(name, "Fast"), "Tokenizer");
  TokenizerClass found{TokenizerRules::file, name, !name.empty(), type};
  if (const Kin* const one = kin_of(name.empty(), name.empty() ? type : kin)) {
    found = {one->rules, name.empty() ? one->name : name, !name.empty(), type};
    if (is_word_piece(one->rules)) refuse_other_steps(config, origin);
    return found;
  }
  if (name.empty()) return found;
  if (lists(kOthers, kin)) refuse(name, from, "is not implemented");
  const bool of_file =
      lists(" PreTrainedTokenizer PreTrainedTokenizerFast TokenizersBackend PythonBackend ", name);
  if (!of_file && !fs::exists(folder / "tokenizer.json"))
    refuse(name, from, "transformers does not know, and there is no tokenizer.json to read as it stands");
  return found;
}

}  // namespace funicular::format
