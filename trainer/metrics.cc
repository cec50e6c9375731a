#include "trainer/metrics.h"

#include <nlohmann/json.hpp>

#include "trainer/file.h"

namespace trireme {

void write_summary(const std::filesystem::path& path, const Summary& summary) {
  const auto or_null = [](std::optional<double> value) {
    return value ? nlohmann::json(*value) : nlohmann::json();
  };
  const nlohmann::ordered_json out = {{"status", summary.status},
                                      {"ranks", summary.ranks},
                                      {"precision", summary.precision},
                                      {"epochs", summary.epochs},
                                      {"steps", summary.steps},
                                      {"samples_per_second", summary.samples_per_second},
                                      {"wall_seconds", summary.wall_seconds},
                                      {"train_loss", summary.train_loss},
                                      {"eval_loss", or_null(summary.eval_loss)},
                                      {"eval_accuracy", or_null(summary.eval_accuracy)},
                                      {"eval_top5", or_null(summary.eval_top5)},
                                      {"data_wait_fraction", summary.data_wait_fraction},
                                      {"exposed_comm_fraction", summary.exposed_comm_fraction},
                                      {"bad_records", summary.bad_records},
                                      {"peak_memory_bytes", summary.peak_memory_bytes},
                                      {"saves_left_out", summary.saves_left_out},
                                      {"seconds_to_first_step", summary.seconds_to_first_step}};
  replace_durably(path, out.dump(2) + "\n");
}

}  // namespace trireme
