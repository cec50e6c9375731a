// main() of test programs in which every case runs on all ranks.
#include "ranks.h"

int main(int argc, char** argv) { return trireme::test::run_on_all_ranks(argc, argv); }
