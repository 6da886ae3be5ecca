"""Writes what transformers computes for models of every family on ragged batches: logits, loss and the gradient of every parameter.

usage: make_references.py MINILM_DIR OUTPUT_DIR

Each case is a folder: model/ (as save_pretrained writes it), batch.safetensors (packed: token_ids, token_type_ids,
lengths, and the targets), expected_fp64.safetensors, expected_fp32.safetensors and expected_bf16.safetensors (logits, loss,
grad.NAME; those of bfloat16, in which the whole model is, written as float32).
"""

import contextlib
import json
import os
import pathlib
import sys
import tempfile

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
from safetensors.torch import load_file, save_file
from transformers import (AlbertForMaskedLM, AlbertForQuestionAnswering, AlbertForSequenceClassification, AlbertForTokenClassification,
                          DebertaV2ForMaskedLM, DebertaV2ForQuestionAnswering, DebertaV2ForSequenceClassification, DebertaV2ForTokenClassification,
                          MPNetForMaskedLM, MPNetForQuestionAnswering, MPNetForSequenceClassification, MPNetForTokenClassification,
                          BertForMaskedLM, BertForPreTraining, BertForQuestionAnswering, BertForSequenceClassification, BertForTokenClassification,
                          DistilBertForMaskedLM, DistilBertForQuestionAnswering, DistilBertForSequenceClassification, DistilBertForTokenClassification,
                          ElectraForMaskedLM, ElectraForPreTraining, ElectraForQuestionAnswering, ElectraForSequenceClassification,
                          ElectraForTokenClassification,
                          CamembertForMaskedLM, CamembertForSequenceClassification, ErnieForMaskedLM, ErnieForSequenceClassification,
                          GteForMaskedLM, GteForSequenceClassification, GteForTokenClassification,
                          NomicBertForMaskedLM, NomicBertForSequenceClassification, NomicBertForTokenClassification,
                          ModernBertForMaskedLM, ModernBertForQuestionAnswering, ModernBertForSequenceClassification,
                          ModernBertForTokenClassification,
                          XLMRobertaForMaskedLM, XLMRobertaForQuestionAnswering, XLMRobertaForSequenceClassification, XLMRobertaForTokenClassification,
                          RobertaForMaskedLM, RobertaForQuestionAnswering, RobertaForSequenceClassification, RobertaForTokenClassification)

from transformers.models.deberta_v2 import modeling_deberta_v2 as deberta
from transformers.models.gte.modeling_gte import GteRotaryEmbedding
from transformers.models.modernbert import modeling_modernbert as modernbert
from transformers.models.nomic_bert.modeling_nomic_bert import NomicBertRotaryEmbedding

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from small_model import small_model

LONG = [512, 257, 256, 255, 300, 1]
SMALL = dict(vocab_size=211, max_position_embeddings=160, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
ROBERTA = dict(SMALL, type_vocab_size=1, layer_norm_eps=1e-5, pad_token_id=1)
ELECTRA = dict(SMALL, embedding_size=20)
DISTILBERT = dict(vocab_size=211, max_position_embeddings=160, dropout=0.0, attention_dropout=0.0, seq_classif_dropout=0.0)
MODERNBERT = dict(vocab_size=211, max_position_embeddings=160, pad_token_id=4, bos_token_id=1, cls_token_id=1, eos_token_id=2, sep_token_id=2)
MPNET = dict(SMALL, layer_norm_eps=1e-5)
ALBERT = dict(SMALL, embedding_size=20, classifier_dropout_prob=0.0)
DEBERTA = dict(SMALL, relative_attention=True, position_buckets=16, norm_rel_ebd="layer_norm", share_att_key=True, pos_att_type="p2c|c2p",
               position_biased_input=False)
NOMIC = dict(SMALL)
GTE = dict(SMALL, pad_token_id=1)
BIASES = dict(norm_bias=True, attention_bias=True, mlp_bias=True, classifier_bias=True)
# Sizes that are no multiple of any register, lengths around the kernels' blocks, and up to BERT's 512.
CASES = {
    "tiny_masked_lm": (BertForMaskedLM, dict(SMALL, hidden_size=24, num_hidden_layers=2, num_attention_heads=2,
                                             intermediate_size=40), [5, 1, 130, 64, 65, 17]),
    "odd_masked_lm": (BertForMaskedLM, dict(SMALL, hidden_size=39, num_hidden_layers=3, num_attention_heads=3,
                                            intermediate_size=61, hidden_act="gelu_new", layer_norm_eps=1e-5),
                      [3, 160, 31, 33]),
    "relu_masked_lm": (BertForMaskedLM, dict(SMALL, hidden_size=32, num_hidden_layers=1, num_attention_heads=4,
                                             intermediate_size=48, hidden_act="relu"), [9, 12, 40]),
    "pairs_classification": (BertForSequenceClassification, dict(SMALL, hidden_size=36, num_hidden_layers=2,
                                                                 num_attention_heads=3, intermediate_size=50,
                                                                 num_labels=3, hidden_act="silu"), [7, 29, 128, 2]),
    "regression": (BertForSequenceClassification, dict(SMALL, hidden_size=16, num_hidden_layers=2, num_attention_heads=1,
                                                       intermediate_size=20, num_labels=1, problem_type="regression"),
                   [4, 11, 100]),
    "pretraining": (BertForPreTraining, dict(SMALL, hidden_size=24, num_hidden_layers=2, num_attention_heads=2,
                                             intermediate_size=40), [5, 31, 130, 2]),
    "multi_label": (BertForSequenceClassification, dict(SMALL, hidden_size=24, num_hidden_layers=2, num_attention_heads=2,
                                                        intermediate_size=32, num_labels=5,
                                                        problem_type="multi_label_classification"), [6, 31, 90, 1]),
    "long_masked_lm": (BertForMaskedLM, dict(SMALL, max_position_embeddings=512, hidden_size=32, num_hidden_layers=2,
                                             num_attention_heads=2, intermediate_size=48), LONG),
    "long_classification": (BertForSequenceClassification, dict(SMALL, max_position_embeddings=512, hidden_size=64,
                                                                num_hidden_layers=2, num_attention_heads=1,
                                                                intermediate_size=64, num_labels=3), LONG),
    "roberta_masked_lm": (RobertaForMaskedLM, dict(ROBERTA, hidden_size=24, num_hidden_layers=2, num_attention_heads=2,
                                                   intermediate_size=40), [5, 2, 130, 64, 65, 17]),
    # As many tokens as there are positions, padding's row elsewhere, two token types, another activation than the head's.
    "odd_roberta_masked_lm": (RobertaForMaskedLM, dict(ROBERTA, hidden_size=39, num_hidden_layers=3, num_attention_heads=3,
                                                       intermediate_size=61, hidden_act="relu", pad_token_id=4,
                                                       type_vocab_size=2), [3, 155, 31, 33]),
    "roberta_classification": (RobertaForSequenceClassification, dict(ROBERTA, hidden_size=36, num_hidden_layers=2,
                                                                      num_attention_heads=3, intermediate_size=50,
                                                                      num_labels=3, hidden_act="silu"), [7, 29, 128, 2]),
    "roberta_regression": (RobertaForSequenceClassification, dict(ROBERTA, hidden_size=16, num_hidden_layers=2,
                                                                  num_attention_heads=1, intermediate_size=20, num_labels=1,
                                                                  problem_type="regression"), [4, 11, 100]),
    "roberta_multi_label": (RobertaForSequenceClassification, dict(ROBERTA, hidden_size=24, num_hidden_layers=2,
                                                                   num_attention_heads=2, intermediate_size=32, num_labels=5,
                                                                   problem_type="multi_label_classification"), [6, 31, 90, 2]),
    "electra_masked_lm": (ElectraForMaskedLM, dict(ELECTRA, hidden_size=24, num_hidden_layers=2, num_attention_heads=2,
                                                   intermediate_size=40), [5, 1, 130, 64, 65, 17]),
    # Embeddings wider than the layers, another activation than the head's; as wide as they are.
    "odd_electra_masked_lm": (ElectraForMaskedLM, dict(ELECTRA, hidden_size=39, num_hidden_layers=3, num_attention_heads=3,
                                                       intermediate_size=61, hidden_act="relu", embedding_size=45,
                                                       layer_norm_eps=1e-5), [3, 160, 31, 33]),
    "even_electra_masked_lm": (ElectraForMaskedLM, dict(ELECTRA, hidden_size=32, num_hidden_layers=1, num_attention_heads=4,
                                                        intermediate_size=48, embedding_size=32), [9, 12, 40]),
    "electra_replaced_tokens": (ElectraForPreTraining, dict(ELECTRA, hidden_size=36, num_hidden_layers=2, num_attention_heads=3,
                                                            intermediate_size=50, hidden_act="gelu_new"), [7, 29, 128, 2]),
    "electra_classification": (ElectraForSequenceClassification, dict(ELECTRA, hidden_size=36, num_hidden_layers=2,
                                                                      num_attention_heads=3, intermediate_size=50,
                                                                      num_labels=3, hidden_act="silu"), [7, 29, 128, 2]),
    "electra_regression": (ElectraForSequenceClassification, dict(ELECTRA, hidden_size=16, num_hidden_layers=2,
                                                                  num_attention_heads=1, intermediate_size=20, num_labels=1,
                                                                  problem_type="regression"), [4, 11, 100]),
    "electra_multi_label": (ElectraForSequenceClassification, dict(ELECTRA, hidden_size=24, num_hidden_layers=2,
                                                                   num_attention_heads=2, intermediate_size=32, num_labels=5,
                                                                   problem_type="multi_label_classification"), [6, 31, 90, 1]),
    # Decoders that are not the word embeddings, though the configuration says that they are.
    "own_decoder_masked_lm": (BertForMaskedLM, dict(SMALL, hidden_size=24, num_hidden_layers=1, num_attention_heads=2,
                                                    intermediate_size=40, own_decoder=True), [5, 31, 64]),
    "own_decoder_roberta": (RobertaForMaskedLM, dict(ROBERTA, hidden_size=24, num_hidden_layers=1, num_attention_heads=2,
                                                     intermediate_size=40, own_decoder=True), [5, 31, 64]),
    "own_decoder_electra": (ElectraForMaskedLM, dict(ELECTRA, hidden_size=24, num_hidden_layers=1, num_attention_heads=2,
                                                     intermediate_size=40, own_decoder=True), [5, 31, 64]),
    "minilm_masked_lm": (BertForMaskedLM, None, [64, 37, 15, 3]),
    "minilm_classification": (BertForSequenceClassification, None, [66, 45, 12]),
    "tags": (BertForTokenClassification, dict(SMALL, hidden_size=24, num_hidden_layers=2, num_attention_heads=2,
                                              intermediate_size=40, num_labels=7), [5, 1, 130, 64, 17]),
    "roberta_tags": (RobertaForTokenClassification, dict(ROBERTA, hidden_size=36, num_hidden_layers=2, num_attention_heads=3,
                                                         intermediate_size=50, num_labels=5), [7, 29, 128, 2]),
    "distilbert_masked_lm": (DistilBertForMaskedLM, dict(DISTILBERT, dim=24, n_layers=2, n_heads=2, hidden_dim=40),
                             [5, 1, 130, 64, 65, 17]),
    # Another activation, which the head shares; positions that begin as sines; a decoder of its own.
    "odd_distilbert_masked_lm": (DistilBertForMaskedLM, dict(DISTILBERT, dim=39, n_layers=3, n_heads=3, hidden_dim=61,
                                                             activation="relu", sinusoidal_pos_embds=True, pad_token_id=4),
                                 [3, 160, 31, 33]),
    "own_decoder_distilbert": (DistilBertForMaskedLM, dict(DISTILBERT, dim=24, n_layers=1, n_heads=2, hidden_dim=40,
                                                           own_decoder=True), [5, 31, 64]),
    "distilbert_classification": (DistilBertForSequenceClassification, dict(DISTILBERT, dim=36, n_layers=2, n_heads=3,
                                                                            hidden_dim=50, num_labels=3, activation="silu"),
                                  [7, 29, 128, 2]),
    "distilbert_regression": (DistilBertForSequenceClassification, dict(DISTILBERT, dim=16, n_layers=2, n_heads=1, hidden_dim=20,
                                                                        num_labels=1, problem_type="regression"), [4, 11, 100, 7, 23, 60, 2, 31]),
    "distilbert_multi_label": (DistilBertForSequenceClassification, dict(DISTILBERT, dim=24, n_layers=2, n_heads=2, hidden_dim=32,
                                                                         num_labels=5, problem_type="multi_label_classification"),
                               [6, 31, 90, 1]),
    "distilbert_tags": (DistilBertForTokenClassification, dict(DISTILBERT, dim=36, n_layers=2, n_heads=3, hidden_dim=50,
                                                               num_labels=5), [7, 29, 128, 2]),
    "electra_tags": (ElectraForTokenClassification, dict(ELECTRA, hidden_size=24, num_hidden_layers=2, num_attention_heads=2,
                                                         intermediate_size=32, num_labels=9), [6, 31, 90, 1]),
    # Equally long, as transformers' softmax counts padding, too.
    "spans": (BertForQuestionAnswering, dict(SMALL, hidden_size=24, num_hidden_layers=2, num_attention_heads=2, intermediate_size=40), [45] * 4),
    "roberta_spans": (RobertaForQuestionAnswering, dict(ROBERTA, hidden_size=36, num_hidden_layers=2, num_attention_heads=3,
                                                        intermediate_size=50), [65] * 3),
    "electra_spans": (ElectraForQuestionAnswering, dict(ELECTRA, hidden_size=24, num_hidden_layers=2, num_attention_heads=2,
                                                        intermediate_size=32), [33] * 3),
    "distilbert_spans": (DistilBertForQuestionAnswering, dict(DISTILBERT, dim=36, n_layers=2, n_heads=3, hidden_dim=50, qa_dropout=0.0),
                         [29] * 4),
}


# Windows shorter than rows, whose ends they cut, and longer than all rows; layers of one kind, and kinds by hand; heads of 12 to
# 128 channels; rows long enough for several pieces of keys; keys of transformers 4 and of transformers 5.
CASES.update({
    "modernbert_masked_lm": (ModernBertForMaskedLM, dict(MODERNBERT, hidden_size=24, num_hidden_layers=4, num_attention_heads=2,
                                                         intermediate_size=40, local_attention=8), [5, 1, 130, 64, 65, 17]),
    "odd_modernbert_masked_lm": (ModernBertForMaskedLM, dict(MODERNBERT, **BIASES, hidden_size=60, num_hidden_layers=3, num_attention_heads=3,
                                                             intermediate_size=61, hidden_activation="silu", local_attention=7,
                                                             layer_types=["sliding_attention", "sliding_attention", "full_attention"]),
                                 [3, 160, 31, 33]),
    "one_layer_modernbert": (ModernBertForMaskedLM, dict(MODERNBERT, hidden_size=128, num_hidden_layers=1, num_attention_heads=1,
                                                         intermediate_size=48, layer_types=["sliding_attention"], local_attention=3), [9, 12, 40]),
    "wide_modernbert": (ModernBertForMaskedLM, dict(MODERNBERT, hidden_size=64, num_hidden_layers=3, num_attention_heads=1, intermediate_size=64,
                                                    local_attention=400), [9, 120, 40]),
    "own_decoder_modernbert": (ModernBertForMaskedLM, dict(MODERNBERT, hidden_size=24, num_hidden_layers=1, num_attention_heads=2,
                                                           intermediate_size=40, own_decoder=True), [5, 31, 64]),
    "old_keys_modernbert": (ModernBertForMaskedLM, dict(MODERNBERT, hidden_size=32, num_hidden_layers=5, num_attention_heads=2, intermediate_size=40,
                                                        local_attention=20, old_keys=dict(global_attn_every_n_layers=2, global_rope_theta=5000.0,
                                                                                          local_rope_theta=300.0)), [5, 31, 64]),
    "new_keys_modernbert": (ModernBertForMaskedLM, dict(MODERNBERT, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=40,
                                                        local_attention=20, rope_parameters={
                                                            "full_attention": {"rope_type": "default", "rope_theta": 700.0},
                                                            "sliding_attention": {"rope_type": "default", "rope_theta": 90.0}}), [5, 31, 64]),
    "long_modernbert": (ModernBertForMaskedLM, dict(MODERNBERT, max_position_embeddings=1024, hidden_size=32, num_hidden_layers=3,
                                                    num_attention_heads=2, intermediate_size=48, local_attention=40), [512, 257, 256, 700, 300, 1]),
    "modernbert_classification": (ModernBertForSequenceClassification, dict(MODERNBERT, hidden_size=36, num_hidden_layers=2, num_attention_heads=3,
                                                                            intermediate_size=50, num_labels=3, local_attention=16), [7, 29, 128, 2]),
    "modernbert_mean": (ModernBertForSequenceClassification, dict(MODERNBERT, **BIASES, hidden_size=36, num_hidden_layers=2, num_attention_heads=3,
                                                                  intermediate_size=50, num_labels=3, classifier_pooling="mean"), [7, 29, 128, 2]),
    "modernbert_regression": (ModernBertForSequenceClassification, dict(MODERNBERT, hidden_size=16, num_hidden_layers=2, num_attention_heads=1,
                                                                        intermediate_size=20, num_labels=1, problem_type="regression"),
                              [4, 11, 100]),
    "modernbert_multi_label": (ModernBertForSequenceClassification, dict(MODERNBERT, hidden_size=24, num_hidden_layers=2, num_attention_heads=2,
                                                                         intermediate_size=32, num_labels=5,
                                                                         problem_type="multi_label_classification"), [6, 31, 90, 1]),
    "modernbert_tags": (ModernBertForTokenClassification, dict(MODERNBERT, hidden_size=36, num_hidden_layers=2, num_attention_heads=3,
                                                               intermediate_size=50, num_labels=5), [7, 29, 128, 2]),
    "xlm_roberta_masked_lm": (XLMRobertaForMaskedLM, dict(ROBERTA, hidden_size=24, num_hidden_layers=2, num_attention_heads=2,
                                                          intermediate_size=40), [5, 2, 130, 64, 65, 17]),
    "xlm_roberta_classification": (XLMRobertaForSequenceClassification, dict(ROBERTA, hidden_size=36, num_hidden_layers=2, num_attention_heads=3,
                                                                             intermediate_size=50, num_labels=3), [7, 29, 128, 2]),
    "xlm_roberta_tags": (XLMRobertaForTokenClassification, dict(ROBERTA, hidden_size=36, num_hidden_layers=2, num_attention_heads=3,
                                                                intermediate_size=50, num_labels=5), [7, 29, 128, 2]),
    "xlm_roberta_spans": (XLMRobertaForQuestionAnswering, dict(ROBERTA, hidden_size=36, num_hidden_layers=2, num_attention_heads=3,
                                                               intermediate_size=50), [65] * 3),
    "camembert_masked_lm": (CamembertForMaskedLM, dict(ROBERTA, hidden_size=24, num_hidden_layers=2, num_attention_heads=2,
                                                       intermediate_size=40), [5, 2, 130, 64, 65, 17]),
    "camembert_classification": (CamembertForSequenceClassification, dict(ROBERTA, hidden_size=36, num_hidden_layers=2, num_attention_heads=3,
                                                                          intermediate_size=50, num_labels=3), [7, 29, 128, 2]),
    "ernie_masked_lm": (ErnieForMaskedLM, dict(SMALL, hidden_size=24, num_hidden_layers=2, num_attention_heads=2, intermediate_size=40),
                        [5, 1, 130, 64, 65, 17]),
    "ernie_tasks": (ErnieForMaskedLM, dict(SMALL, hidden_size=24, num_hidden_layers=2, num_attention_heads=2, intermediate_size=40,
                                           use_task_id=True), [5, 1, 130, 64, 65, 17]),
    "ernie_classification": (ErnieForSequenceClassification, dict(SMALL, hidden_size=36, num_hidden_layers=2, num_attention_heads=3,
                                                                  intermediate_size=50, num_labels=3, use_task_id=True), [7, 29, 128, 2]),
    "mpnet_masked_lm": (MPNetForMaskedLM, dict(MPNET, hidden_size=24, num_hidden_layers=2, num_attention_heads=2, intermediate_size=40),
                        [5, 2, 130, 64, 65, 17]),
    "odd_mpnet_masked_lm": (MPNetForMaskedLM, dict(MPNET, hidden_size=39, num_hidden_layers=3, num_attention_heads=3, intermediate_size=61,
                                                   hidden_act="relu"), [3, 155, 31, 33]),
    "wide_mpnet": (MPNetForMaskedLM, dict(MPNET, hidden_size=128, num_hidden_layers=1, num_attention_heads=1, intermediate_size=48), [9, 12, 150]),
    "own_decoder_mpnet": (MPNetForMaskedLM, dict(MPNET, hidden_size=24, num_hidden_layers=1, num_attention_heads=2, intermediate_size=40,
                                                 own_decoder=True), [5, 31, 64]),
    "long_mpnet": (MPNetForMaskedLM, dict(MPNET, max_position_embeddings=1024, hidden_size=32, num_hidden_layers=2, num_attention_heads=2,
                                          intermediate_size=48), [512, 257, 256, 700, 300, 2]),
    "mpnet_classification": (MPNetForSequenceClassification, dict(MPNET, hidden_size=36, num_hidden_layers=2, num_attention_heads=3,
                                                                  intermediate_size=50, num_labels=3, hidden_act="silu"), [7, 29, 128, 2]),
    "mpnet_regression": (MPNetForSequenceClassification, dict(MPNET, hidden_size=16, num_hidden_layers=2, num_attention_heads=1, intermediate_size=20,
                                                              num_labels=1, problem_type="regression"), [4, 11, 100]),
    "mpnet_multi_label": (MPNetForSequenceClassification, dict(MPNET, hidden_size=24, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32,
                                                               num_labels=5, problem_type="multi_label_classification"), [6, 31, 90, 2]),
    "mpnet_tags": (MPNetForTokenClassification, dict(MPNET, hidden_size=36, num_hidden_layers=2, num_attention_heads=3, intermediate_size=50,
                                                     num_labels=5), [7, 29, 128, 2]),
    "mpnet_spans": (MPNetForQuestionAnswering, dict(MPNET, hidden_size=36, num_hidden_layers=2, num_attention_heads=3, intermediate_size=50), [65] * 3),
    "albert_masked_lm": (AlbertForMaskedLM, dict(ALBERT, hidden_size=24, num_hidden_layers=3, num_attention_heads=2, intermediate_size=40),
                         [5, 1, 130, 64, 65, 17]),
    # Groups of neighbours share weights; embeddings wider than the layers; as wide as they are, and still projected.
    "odd_albert_masked_lm": (AlbertForMaskedLM, dict(ALBERT, hidden_size=39, num_hidden_layers=4, num_hidden_groups=2, num_attention_heads=3,
                                                     intermediate_size=61, hidden_act="relu", embedding_size=45, layer_norm_eps=1e-5), [3, 160, 31, 33]),
    "even_albert_masked_lm": (AlbertForMaskedLM, dict(ALBERT, hidden_size=32, num_hidden_layers=1, num_attention_heads=4, intermediate_size=48,
                                                      embedding_size=32), [9, 12, 40]),
    "wide_albert": (AlbertForMaskedLM, dict(ALBERT, hidden_size=128, num_hidden_layers=2, num_attention_heads=1, intermediate_size=48), [9, 12, 150]),
    "own_decoder_albert": (AlbertForMaskedLM, dict(ALBERT, hidden_size=24, num_hidden_layers=2, num_attention_heads=2, intermediate_size=40,
                                                   own_decoder=True), [5, 31, 64]),
    "albert_classification": (AlbertForSequenceClassification, dict(ALBERT, hidden_size=36, num_hidden_layers=2, num_attention_heads=3,
                                                                    intermediate_size=50, num_labels=3, hidden_act="silu"), [7, 29, 128, 2]),
    "albert_regression": (AlbertForSequenceClassification, dict(ALBERT, hidden_size=16, num_hidden_layers=2, num_attention_heads=1, intermediate_size=20,
                                                                num_labels=1, problem_type="regression"), [4, 11, 100, 30, 7, 60, 19, 45]),
    "albert_multi_label": (AlbertForSequenceClassification, dict(ALBERT, hidden_size=24, num_hidden_layers=2, num_attention_heads=2,
                                                                 intermediate_size=32, num_labels=5,
                                                                 problem_type="multi_label_classification"), [6, 31, 90, 1]),
    "albert_tags": (AlbertForTokenClassification, dict(ALBERT, hidden_size=36, num_hidden_layers=2, num_attention_heads=3, intermediate_size=50,
                                                       num_labels=5), [7, 29, 128, 2]),
    "albert_spans": (AlbertForQuestionAnswering, dict(ALBERT, hidden_size=36, num_hidden_layers=2, num_attention_heads=3, intermediate_size=50), [65] * 3),
    "deberta_masked_lm": (DebertaV2ForMaskedLM, dict(DEBERTA, hidden_size=24, num_hidden_layers=2, num_attention_heads=2, intermediate_size=40),
                          [5, 1, 130, 64, 65, 17]),
    # Positions and token types in the embeddings besides, other buckets, distances beyond the farthest.
    "odd_deberta_masked_lm": (DebertaV2ForMaskedLM, dict(DEBERTA, hidden_size=39, num_hidden_layers=3, num_attention_heads=3, intermediate_size=61,
                                                         hidden_act="relu", position_biased_input=True, type_vocab_size=2, position_buckets=24,
                                                         max_relative_positions=100, pos_att_type=["c2p", "p2c"]), [3, 160, 31, 33]),
    "wide_deberta": (DebertaV2ForMaskedLM, dict(DEBERTA, hidden_size=256, num_hidden_layers=1, num_attention_heads=2, intermediate_size=48), [9, 12, 150]),
    "own_decoder_deberta": (DebertaV2ForMaskedLM, dict(DEBERTA, hidden_size=24, num_hidden_layers=1, num_attention_heads=2, intermediate_size=40,
                                                       own_decoder=True), [5, 31, 64]),
    "long_deberta": (DebertaV2ForMaskedLM, dict(DEBERTA, max_position_embeddings=512, position_buckets=256, hidden_size=32, num_hidden_layers=2,
                                                num_attention_heads=2, intermediate_size=48), LONG),
    "deberta_classification": (DebertaV2ForSequenceClassification, dict(DEBERTA, hidden_size=36, num_hidden_layers=2, num_attention_heads=3,
                                                                        intermediate_size=50, num_labels=3, hidden_act="silu",
                                                                        problem_type="single_label_classification"), [7, 29, 128, 2]),
    "deberta_regression": (DebertaV2ForSequenceClassification, dict(DEBERTA, hidden_size=16, num_hidden_layers=2, num_attention_heads=1,
                                                                    intermediate_size=20, num_labels=1, problem_type="regression"), [4, 11, 100]),
    "deberta_multi_label": (DebertaV2ForSequenceClassification, dict(DEBERTA, hidden_size=24, num_hidden_layers=2, num_attention_heads=2,
                                                                     intermediate_size=32, num_labels=5,
                                                                     problem_type="multi_label_classification"), [6, 31, 90, 1]),
    "deberta_tags": (DebertaV2ForTokenClassification, dict(DEBERTA, hidden_size=36, num_hidden_layers=2, num_attention_heads=3, intermediate_size=50,
                                                           num_labels=5), [7, 29, 128, 2]),
    "deberta_spans": (DebertaV2ForQuestionAnswering, dict(DEBERTA, hidden_size=36, num_hidden_layers=2, num_attention_heads=3, intermediate_size=50),
                      [65] * 3),
    "modernbert_spans": (ModernBertForQuestionAnswering, dict(MODERNBERT, hidden_size=36, num_hidden_layers=2, num_attention_heads=3,
                                                              intermediate_size=50), [29] * 4),
    # Heads of 12 to 128 channels, other bases, no token types and several; the form of the authors' own programs.
    "nomic_masked_lm": (NomicBertForMaskedLM, dict(NOMIC, hidden_size=24, num_hidden_layers=2, num_attention_heads=2, intermediate_size=40),
                        [5, 1, 130, 64, 65, 17]),
    "odd_nomic_masked_lm": (NomicBertForMaskedLM, dict(NOMIC, hidden_size=60, num_hidden_layers=3, num_attention_heads=3, intermediate_size=61,
                                                       hidden_act="gelu", layer_norm_eps=1e-5, type_vocab_size=3,
                                                       rope_parameters={"rope_type": "default", "rope_theta": 50.0}, present_names=True),
                            [3, 160, 31, 33]),
    "wide_nomic": (NomicBertForMaskedLM, dict(NOMIC, hidden_size=128, num_hidden_layers=1, num_attention_heads=1, intermediate_size=48), [9, 12, 150]),
    "own_decoder_nomic": (NomicBertForMaskedLM, dict(NOMIC, hidden_size=24, num_hidden_layers=1, num_attention_heads=2, intermediate_size=40,
                                                     own_decoder=True), [5, 31, 64]),
    "older_nomic": (NomicBertForMaskedLM, dict(NOMIC, hidden_size=24, num_hidden_layers=2, num_attention_heads=2, intermediate_size=256,
                                               rope_theta=300.0, present_names=True, older=True), [5, 31, 64]),
    "long_nomic": (NomicBertForMaskedLM, dict(NOMIC, max_position_embeddings=1024, hidden_size=32, num_hidden_layers=2, num_attention_heads=2,
                                              intermediate_size=48), [512, 257, 256, 700, 300, 1]),
    "nomic_classification": (NomicBertForSequenceClassification, dict(NOMIC, hidden_size=36, num_hidden_layers=2, num_attention_heads=3,
                                                                      intermediate_size=50, num_labels=3), [7, 29, 128, 2]),
    "nomic_regression": (NomicBertForSequenceClassification, dict(NOMIC, hidden_size=16, num_hidden_layers=2, num_attention_heads=1,
                                                                  intermediate_size=20, num_labels=1, problem_type="regression"), [4, 11, 100, 30]),
    "nomic_multi_label": (NomicBertForSequenceClassification, dict(NOMIC, hidden_size=24, num_hidden_layers=2, num_attention_heads=2,
                                                                   intermediate_size=32, num_labels=5,
                                                                   problem_type="multi_label_classification"), [6, 31, 90, 1, 44, 17, 60, 12]),
    "nomic_tags": (NomicBertForTokenClassification, dict(NOMIC, hidden_size=36, num_hidden_layers=2, num_attention_heads=3, intermediate_size=50,
                                                         num_labels=5), [7, 29, 128, 2]),
    "gte_masked_lm": (GteForMaskedLM, dict(GTE, hidden_size=24, num_hidden_layers=2, num_attention_heads=2, intermediate_size=40),
                      [5, 2, 130, 64, 65, 17]),
    "odd_gte_masked_lm": (GteForMaskedLM, dict(GTE, hidden_size=60, num_hidden_layers=3, num_attention_heads=3, intermediate_size=61, hidden_act="relu",
                                               layer_norm_eps=1e-5, type_vocab_size=0, rope_parameters={"rope_type": "default", "rope_theta": 50.0},
                                               present_names=True),
                          [3, 160, 31, 33]),
    # With the default base of 160,000 torch's float32 powers for 128 channels are not the nearest ones.
    "wide_gte": (GteForMaskedLM, dict(GTE, hidden_size=128, num_hidden_layers=1, num_attention_heads=1, intermediate_size=48, type_vocab_size=2,
                                      rope_theta=1000.0), [9, 12, 150]),
    "own_decoder_gte": (GteForMaskedLM, dict(GTE, hidden_size=24, num_hidden_layers=1, num_attention_heads=2, intermediate_size=40, own_decoder=True),
                        [5, 31, 64]),
    "older_gte": (GteForMaskedLM, dict(GTE, hidden_size=24, num_hidden_layers=2, num_attention_heads=2, intermediate_size=40, rope_theta=300.0,
                                       present_names=True, older=True), [5, 31, 64]),
    "long_gte": (GteForMaskedLM, dict(GTE, max_position_embeddings=1024, hidden_size=32, num_hidden_layers=2, num_attention_heads=2,
                                      intermediate_size=48), [512, 257, 256, 700, 300, 2]),
    "gte_classification": (GteForSequenceClassification, dict(GTE, hidden_size=36, num_hidden_layers=2, num_attention_heads=3, intermediate_size=50,
                                                              num_labels=3), [7, 29, 128, 2]),
    "gte_regression": (GteForSequenceClassification, dict(GTE, hidden_size=16, num_hidden_layers=2, num_attention_heads=1, intermediate_size=20,
                                                          num_labels=1, problem_type="regression"), [4, 11, 100, 30]),
    "gte_multi_label": (GteForSequenceClassification, dict(GTE, hidden_size=24, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32,
                                                           num_labels=5, problem_type="multi_label_classification"), [6, 31, 90, 2]),
    "gte_tags": (GteForTokenClassification, dict(GTE, hidden_size=36, num_hidden_layers=2, num_attention_heads=3, intermediate_size=50, num_labels=5),
                 [7, 29, 128, 2]),
})


def turned(query, key, cosine, sine, unsqueeze_dim=1):
    return tuple(x * cosine.unsqueeze(unsqueeze_dim) + modernbert.rotate_half(x) * sine.unsqueeze(unsqueeze_dim) for x in (query, key))


def rotations(rotary, x, positions, layer_type=None):
    """transformers' angles, of 32 bits, and their cosines and sines in 64 bits."""
    frequencies = getattr(rotary, f"{layer_type}_inv_freq" if layer_type else "inv_freq")
    angles = (positions[..., None].float() * frequencies.float()).double()
    angles = torch.cat((angles, angles), -1)
    return angles.cos(), angles.sin()


def attention(module, query, key, value, mask, scaling, **kwargs):
    scores = query @ key.transpose(2, 3) * scaling
    weights = (scores if mask is None else scores + mask).softmax(-1)
    return (weights @ value).transpose(1, 2).contiguous(), weights


@contextlib.contextmanager
def all_in_double():
    """transformers turns queries and keys, computes a softmax and DeBERTa's scale in 32 bits, whatever the model's type."""
    scale, deberta.scaled_size_sqrt = deberta.scaled_size_sqrt, lambda query, products: torch.tensor(query.size(-1) * products).double().sqrt()
    kept = modernbert.apply_rotary_pos_emb, modernbert.eager_attention_forward, modernbert.ModernBertRotaryEmbedding.forward
    modernbert.apply_rotary_pos_emb, modernbert.eager_attention_forward, modernbert.ModernBertRotaryEmbedding.forward = turned, attention, rotations
    of_others = {rotary: rotary.forward for rotary in (NomicBertRotaryEmbedding, GteRotaryEmbedding)}
    for rotary in of_others:
        rotary.forward = rotations
    try:
        yield
    finally:
        for rotary, forward in of_others.items():
            rotary.forward = forward
        modernbert.apply_rotary_pos_emb, modernbert.eager_attention_forward, modernbert.ModernBertRotaryEmbedding.forward = kept
        deberta.scaled_size_sqrt = scale


def rename_keys(folder, old_keys):
    """Writes the configuration as transformers 4 has it."""
    with open(os.path.join(folder, "config.json"), encoding="utf-8") as file:
        config = json.load(file)
    for key in ("layer_types", "rope_parameters"):
        del config[key]
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
        json.dump(config | old_keys, file)


# Names of weights in transformers 5, and in files of the authors' own programs; their joint weights, with the parts in order.
OLDER = {
    "nomic_bert": ([(".embeddings.LayerNorm", ".emb_ln"), (".layers.", ".encoder.layers."), ("self_attn.o_proj", "attn.out_proj"),
                    ("post_attention_layernorm", "norm1"), ("post_mlp_layernorm", "norm2"), ("mlp.gate_proj", "mlp.fc12"),
                    ("mlp.up_proj", "mlp.fc11"), ("mlp.down_proj", "mlp.fc2")],
                   {"attn.Wqkv": ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"]}),
    "gte": ([("gte.", "new."), (".layers.", ".encoder.layer."), ("self_attn.o_proj", "attention.o_proj"), ("post_attention_layernorm", "attn_ln"),
             ("post_mlp_layernorm", "mlp_ln"), ("lm_head.layer_norm", "lm_head.norm")],
            {"attention.qkv_proj": ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"], "mlp.up_gate_proj": ["mlp.up_proj", "mlp.gate_proj"]}),
}


def under_older_names(weights, family):
    names, joints = OLDER[family]
    for whole, parts in joints.items():
        for first in [name for name in weights if parts[0] in name]:
            weights[first.replace(parts[0], whole)] = torch.cat([weights.pop(first.replace(parts[0], part)) for part in parts])
    for present, older in names:
        weights = {name.replace(present, older): value for name, value in weights.items()}
    return weights


def write_older(folder, model):
    """The files as the authors' own programs have them. transformers reads such encoders, too."""
    weights, config = under_older_names(load_file(os.path.join(folder, "model.safetensors")), model.config.model_type), model.config
    encoder = {name.split(".", 1)[1]: value for name, value in weights.items() if name.startswith(("nomic_bert.", "new."))}
    save_file(encoder, os.path.join(folder, "model.safetensors"), {"format": "pt"})
    read = type(model.base_model).from_pretrained(folder).state_dict()
    for name, value in model.base_model.state_dict().items():
        assert torch.equal(value, read[name]), f"transformers reads other weights of older files: {name}"
    save_file({name.replace("nomic_bert.", "bert."): value for name, value in weights.items()}, os.path.join(folder, "model.safetensors"),
              {"format": "pt"})
    if config.model_type == "gte":
        values = config.to_dict() | {"model_type": "new", "architectures": ["NewForMaskedLM"], "rope_theta": config.rope_parameters["rope_theta"],
                                     "rope_scaling": None, "position_embedding_type": "rope", "layer_norm_type": "layer_norm", "pack_qkv": True}
        del values["rope_parameters"]
    else:
        values = {"model_type": "nomic_bert", "n_embd": config.hidden_size, "n_layer": config.num_hidden_layers, "n_head": config.num_attention_heads,
                  "n_inner": config.intermediate_size, "n_positions": config.max_position_embeddings, "vocab_size": config.vocab_size,
                  "activation_function": "swiglu", "layer_norm_epsilon": config.layer_norm_eps, "resid_pdrop": 0.0, "attn_pdrop": 0.0,
                  "rotary_emb_base": config.rope_parameters["rope_theta"], "rotary_emb_fraction": 1.0, "qkv_proj_bias": False, "mlp_fc1_bias": False,
                  "mlp_fc2_bias": False, "type_vocab_size": config.type_vocab_size, "pad_token_id": config.pad_token_id}
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
        json.dump(values, file)


def cast(model, dtype):
    """The weights in this type, and the frequencies of rotary positions in float32, as from_pretrained leaves them."""
    frequencies = [(module, name, buffer.clone()) for module in model.modules() for name, buffer in module.named_buffers(recurse=False)
                   if "inv_freq" in name]
    model = model.to(dtype)
    for module, name, buffer in frequencies:
        setattr(module, name, buffer)
    return model


def make_model(model_class, options, minilm):
    if options is None:
        extra = {} if model_class is BertForMaskedLM else {"num_labels": 2}
        return model_class.from_pretrained(minilm, attn_implementation="eager", dtype=torch.float32, **extra)
    own_decoder = "own_decoder" in options
    options = {name: value for name, value in options.items() if name not in ("own_decoder", "old_keys", "older", "present_names")} | options.get("old_keys", {})
    model = model_class(model_class.config_class(**options, attn_implementation="eager"))
    if own_decoder:
        decoder = model.get_output_embeddings()
        decoder.weight = torch.nn.Parameter(decoder.weight.detach().clone())
    with torch.no_grad():  # far from the initial state, so that every part of the network matters
        for name, parameter in model.named_parameters():
            parameter.add_(torch.randn_like(parameter) * (0.1 if parameter.dim() == 1 else 0.2))
            if parameter.dim() == 2:  # bfloat16 holds them as they are, so that its results can be compared too
                parameter.copy_(parameter.bfloat16())
    return model


def make_batch(model, lengths, is_masked_lm, generator):
    config = model.config
    longest = max(lengths)
    ids = torch.randint(0, min(config.vocab_size, 3000), (len(lengths), longest), generator=generator)
    mask = torch.arange(longest)[None, :] < torch.tensor(lengths)[:, None]
    types = torch.zeros_like(ids)
    ids[0, 1] = config.pad_token_id  # inside a sequence: its embedding gets no gradient
    for row, length in enumerate(lengths):
        types[row, length // 2 : length] = max(0, min(1, getattr(config, "type_vocab_size", 2) - 1))
    ids[~mask] = config.pad_token_id
    types[~mask] = 0
    if is_masked_lm:
        chosen = (torch.rand(ids.shape, generator=generator) < 0.2) & mask
        chosen[:, 0] = not isinstance(model, BertForPreTraining)  # which reads the first tokens as they are
        labels = torch.where(chosen, torch.randint(0, config.vocab_size, ids.shape, generator=generator), -100)
    elif gives_spans(model):
        places = torch.randint(0, longest, (2, len(lengths)), generator=generator)
        labels = places.amin(0), places.amax(0)
    elif gives_tags(model):
        chosen = (torch.rand(ids.shape, generator=generator) < 0.5) & mask
        chosen[0, 0] = True
        labels = torch.where(chosen, torch.randint(0, config.num_labels, ids.shape, generator=generator), -100)
    elif isinstance(model, ElectraForPreTraining):
        labels = ((torch.rand(ids.shape, generator=generator) < 0.2) & mask).long()
    elif config.problem_type == "multi_label_classification":
        labels = torch.randint(0, 2, (len(lengths), config.num_labels), generator=generator).float()
    elif config.num_labels == 1:
        labels = torch.randn(len(lengths), generator=generator)
    else:
        labels = torch.randint(0, config.num_labels, (len(lengths),), generator=generator)
    if isinstance(model, BertForPreTraining):
        labels = labels, torch.randint(0, 2, (len(lengths),), generator=generator)
    return ids, types, mask, labels


def gives_tags(model):
    return type(model).__name__.endswith("ForTokenClassification")


def gives_spans(model):
    return type(model).__name__.endswith("ForQuestionAnswering")


def packed(ids, types, mask, labels, lengths, is_masked_lm, tags, spans):
    batch = {"token_ids": ids[mask], "token_type_ids": types[mask], "lengths": torch.tensor(lengths)}
    if spans:
        batch["starts"], batch["ends"] = labels
        batch["span_places"] = torch.arange(ids.numel())
        return {name: value.contiguous() for name, value in batch.items()}
    if isinstance(labels, tuple):
        labels, batch["next_sentence_labels"] = labels
    if is_masked_lm:
        flat = labels[mask]
        batch["mlm_rows"] = torch.nonzero(flat != -100).flatten()
        batch["mlm_labels"] = flat[flat != -100]
    elif tags:
        flat = labels[mask]
        batch["tag_rows"] = torch.nonzero(flat != -100).flatten()
        batch["tag_sequences"] = torch.arange(len(lengths))[:, None].expand(ids.shape)[mask][flat != -100]
        batch["labels"] = flat[flat != -100]
    elif labels.shape == ids.shape:
        batch["replaced"] = labels[mask]
    else:
        batch["labels"] = labels
    return {name: value.contiguous() for name, value in batch.items()}


def replaced_loss(out, mask, labels):
    """transformers' own, of which it rounds the labels, and so the loss, to float32: in the model's type."""
    logits = out.logits[mask]
    loss = torch.nn.functional.binary_cross_entropy_with_logits(logits, labels[mask].to(logits.dtype))
    torch.testing.assert_close(loss.float(), out.loss.float(), rtol=2e-2 if logits.dtype == torch.bfloat16 else 1e-6, atol=0)
    return loss


def word_loss(out, labels):
    """transformers' own, which some families compute in float32: in the model's type."""
    loss = torch.nn.functional.cross_entropy(out.logits.flatten(0, 1), labels.flatten())
    torch.testing.assert_close(loss.float(), out.loss.float(), rtol=2e-2 if out.logits.dtype == torch.bfloat16 else 1e-6, atol=0)
    return loss


def expected(model, ids, types, mask, labels, is_masked_lm):
    model.zero_grad()
    if gives_spans(model):
        typed = {"token_type_ids": types} if hasattr(model.config, "type_vocab_size") else {}
        out = model(input_ids=ids, attention_mask=mask.long(), start_positions=labels[0], end_positions=labels[1], **typed)
        out.loss.backward()
        logits = torch.stack([out.start_logits, out.end_logits], -1)[mask]
        return collected(model, {"logits": logits, "loss": out.loss})
    both = isinstance(labels, tuple)
    labels, more = (labels[0], {"next_sentence_label": labels[1]}) if both else (labels, {})
    real_labels = labels.to(model.dtype) if labels.is_floating_point() else labels
    typed = {} if isinstance(model, modernbert.ModernBertPreTrainedModel) else {"token_type_ids": types}
    out = model(input_ids=ids, attention_mask=mask.long(), labels=real_labels, **typed, **more)
    loss = out.loss
    if isinstance(model, ElectraForPreTraining):
        loss = replaced_loss(out, mask, labels)
    elif is_masked_lm and not both:
        loss = word_loss(out, labels)
    loss.backward()
    logits = out.prediction_logits if both else out.logits
    logits = logits[mask][labels[mask] != -100] if is_masked_lm or gives_tags(model) else logits[mask] if labels.shape == ids.shape else logits
    more = {"next_sentence_logits": out.seq_relationship_logits} if both else {}
    return collected(model, {"logits": logits, "loss": loss, **more})


def collected(model, outputs):
    result = {name: value.detach().clone() for name, value in outputs.items()}
    words = model.get_input_embeddings().weight
    of_words = next(name for name, parameter in model.named_parameters(remove_duplicate=False)
                    if parameter is words and "embeddings." in name)
    for name, parameter in model.named_parameters():  # some families list a decoder before the embeddings that it shares
        result["grad." + (of_words if parameter is words else name)] = parameter.grad.clone()
    return {name: value.contiguous() for name, value in result.items()}


def tied_electra():
    """A generator and a discriminator that have their embeddings in common."""
    sizes = dict(ELECTRA, num_hidden_layers=2, num_attention_heads=2)
    generator = make_model(ElectraForMaskedLM, dict(sizes, hidden_size=16, intermediate_size=28), None).eval()
    discriminator = make_model(ElectraForPreTraining, dict(sizes, hidden_size=36, intermediate_size=50), None).eval()
    generator.electra.embeddings = discriminator.electra.embeddings
    generator.generator_lm_head.weight = discriminator.electra.embeddings.word_embeddings.weight
    return generator, discriminator


def draw(logits, uniforms):
    """The first token whose cumulative probability is above the row's uniform number."""
    return torch.searchsorted(logits.double().softmax(-1).cumsum(-1), uniforms[:, None], right=True)[:, 0]


def electra_step(generator, discriminator, ids, mask, chosen, shown, uniforms, drawn=None):
    """The loss of Clark et al. 2020, section 2, and its gradients; returns also the tokens that were drawn."""
    for model in (generator, discriminator):
        model.zero_grad()
    types = torch.zeros_like(ids)
    guess = generator(input_ids=shown, token_type_ids=types, attention_mask=mask.long(), labels=torch.where(chosen, ids, -100))
    if drawn is None:
        drawn = draw(guess.logits[chosen].detach(), uniforms)
    corrupted = ids.clone()
    corrupted[chosen] = drawn
    told = discriminator(input_ids=corrupted, token_type_ids=types, attention_mask=mask.long(), labels=(corrupted != ids).long())
    of_discriminator = replaced_loss(told, mask, corrupted != ids)
    loss = guess.loss + 50 * of_discriminator
    loss.backward()
    result = {"loss": loss.detach(), "mlm": guess.loss.detach(), "replaced": of_discriminator.detach(), "logits": told.logits[mask].detach(),
              "drawn": corrupted[mask]}
    for prefix, model in (("generator.", generator), ("", discriminator)):
        for name, parameter in model.named_parameters():
            if not (prefix and name.startswith("electra.embeddings.")):
                result[f"grad.{prefix}{name}"] = parameter.grad
    return {name: value.clone().contiguous() for name, value in result.items()}, drawn


def write_electra_objective(folder):
    torch.manual_seed(77)
    generator, discriminator = tied_electra()
    for name, model in (("generator", generator), ("model", discriminator)):
        model.save_pretrained(os.path.join(folder, name))
    lengths = [7, 61, 130, 2, 40]
    ids = torch.randint(5, 211, (len(lengths), max(lengths)))
    mask = torch.arange(max(lengths))[None, :] < torch.tensor(lengths)[:, None]
    ids[0, 3] = 0  # the padding token's embedding gets no gradient
    ids[~mask] = 0
    chosen = (torch.rand(ids.shape) < 0.2) & mask
    chosen[:, 0] = False
    shown = torch.where(chosen & (torch.rand(ids.shape) < 0.85), torch.tensor(4), ids)
    bits = torch.randint(2 ** 53, (int(chosen.sum()),))
    save_file({"token_ids": shown[mask], "token_type_ids": torch.zeros(int(mask.sum()), dtype=torch.long),
               "lengths": torch.tensor(lengths), "mlm_rows": torch.nonzero(chosen[mask]).flatten(), "mlm_labels": ids[chosen],
               "sampling_bits": bits}, os.path.join(folder, "batch.safetensors"))
    drawn = None
    for suffix, dtype in (("fp64", torch.float64), ("fp32", torch.float32)):  # the same tokens for both
        result, drawn = electra_step(generator.to(dtype), discriminator.to(dtype), ids, mask, chosen, shown, bits.double() * 2.0 ** -53, drawn)
        save_file(result, os.path.join(folder, f"expected_{suffix}.safetensors"))
    print("wrote electra_objective")


def main():
    minilm, output = sys.argv[1:3]
    with tempfile.TemporaryDirectory() as folder:  # all layers; with 30,000 tokens the decoder in bfloat16 takes most of the time
        write_cases(small_model(minilm, os.path.join(folder, "minilm"), layers=6), output)


def write_cases(minilm, output):
    write_electra_objective(os.path.join(output, "electra_objective"))
    for index, (name, (model_class, options, lengths)) in enumerate(CASES.items()):
        torch.manual_seed(1000 + index)
        generator = torch.Generator().manual_seed(2000 + index)
        is_masked_lm = model_class.__name__.endswith("ForMaskedLM") or model_class is BertForPreTraining
        model = make_model(model_class, options, minilm).eval()
        folder = os.path.join(output, name)
        os.makedirs(folder, exist_ok=True)
        # transformers 5 writes the names of older files for some families, unless it is told otherwise.
        model.save_pretrained(os.path.join(folder, "model"), save_original_format="present_names" not in (options or {}))
        if "old_keys" in (options or {}):
            rename_keys(os.path.join(folder, "model"), options["old_keys"])
        if "older" in (options or {}):
            write_older(os.path.join(folder, "model"), model)
        ids, types, mask, labels = make_batch(model, lengths, is_masked_lm, generator)
        save_file(packed(ids, types, mask, labels, lengths, is_masked_lm, gives_tags(model), gives_spans(model)), os.path.join(folder, "batch.safetensors"))
        for suffix, dtype in (("fp32", torch.float32), ("fp64", torch.float64), ("bf16", torch.bfloat16)):  # which rounds its weights
            with all_in_double() if dtype == torch.float64 else contextlib.nullcontext():
                result = expected(cast(model, dtype), ids, types, mask, labels, is_masked_lm)
            result = {key: value.float() if dtype == torch.bfloat16 else value for key, value in result.items()}
            save_file(result, os.path.join(folder, f"expected_{suffix}.safetensors"))
        print("wrote", name)


if __name__ == "__main__":
    main()
