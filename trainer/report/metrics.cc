#include "trainer/report/metrics.h"

#include "core/file.h"
#include "trainer/base/json.h"
#include "trainer/report/record_fields.h"

namespace trireme::train {

void write_summary(const std::filesystem::path& path, const Summary& summary) {
  nlohmann::ordered_json out = {{"status", summary.status},
                                {"ended_by", summary.ended_by},
                                {"ranks", summary.ranks},
                                {"precision", summary.precision},
                                {"epochs", summary.epochs},
                                {"steps", summary.steps},
                                {"skipped_steps", summary.skipped_steps},
                                {"samples_per_second", summary.samples_per_second},
                                {"wall_seconds", summary.wall_seconds},
                                {"train_loss", summary.train_loss}};
  if (summary.tokens_per_second) out["tokens_per_second"] = *summary.tokens_per_second;
  if (summary.model_flops_utilization) {
    out["model_flops_utilization"] = *summary.model_flops_utilization;
  }
  if (summary.padding_share) out["padding_share"] = *summary.padding_share;
  put_metrics(out, "eval_", summary.eval, Missing::kNull);
  out.update({{"eval_step", summary.eval_step}, {"best_metric", summary.best_metric}});
  put_metrics(out, "best_", summary.best, Missing::kNull);
  out.update({{"best_step", summary.best_step},
              {"data_wait_fraction", summary.data_wait_fraction},
              {"exposed_comm_fraction", summary.exposed_comm_fraction},
              {"bad_records", summary.bad_records},
              {"peak_memory_bytes", summary.peak_memory_bytes},
              {"saves_left_out", summary.skipped_checkpoints},
              {"seconds_to_first_step", summary.seconds_to_first_step}});
  if (!summary.reason.empty()) out["reason"] = summary.reason;
  replace_durably(path, json_text(out, 2) + "\n");
}

}  // namespace trireme::train
