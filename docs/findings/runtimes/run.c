/* What a runtime computes of a model with XNNPACK and without it, in C and without Python.
 *
 *   gcc -rdynamic -o run run.c -ldl
 *   ./run LIBRARY MODEL                 with XNNPACK the same as without it
 *   ./run LIBRARY MODEL guarded         the same, and nothing is touched before the library's larger blocks of memory
 *   ./run LIBRARY MODEL last            the same, and nothing is touched behind the model, which ends where a page does
 *   ./run LIBRARY MODEL refused         refused with XNNPACK and without it
 *   ./run LIBRARY MODEL cpu NUMBER...   without XNNPACK these first numbers, or a refusal
 *   ./run LIBRARY MODEL cpu             the same: no numbers, or a refusal
 *   ./run LIBRARY MODEL again NUMBER... as `cpu`, of a second time, with inputs 1, 2, 3, ...
 *   ./run LIBRARY MODEL reference NUMBER...  as `cpu`, by the reference kernels
 *   ./run LIBRARY MODEL lives           without XNNPACK any answer
 *
 * LIBRARY is a runtime's own: ai_edge_litert/libLiteRt.so, or tflite_runtime/_pywrap_tensorflow_interpreter_wrapper.so.
 * MODEL is a .tflite file; the scripts of docs/findings write theirs (SCRIPT --write FOLDER). Each input has the
 * values 0, 1, 2, ..., and the first output is looked at: its shape and its first eight numbers.
 *
 * It prints what was expected and what it saw. It ends with 0 where the library does as expected, 1 where it does
 * not (also by a crash), 2 where it cannot run. A model that the CPU refuses may be computed with XNNPACK unless
 * `refused` is said, but must not end the process.
 *
 * Unless XNNPACK is looked at each byte of a new block is 0x55 (malloc of glibc), so that memory that nobody wrote holds the
 * same each time: 85 in int8, 21845 in int16, 1.466e13 in float32.
 */
#include "runtimes.h"

#include "guarded.h"
#include "litert.h"
#include "tflite.h"

typedef struct {
  int status; /* what waitpid gives */
  char text[4096];
} Told;

/* What a process of its own says, for one of these may die. */
static Told told(const char* library, const char* model, int with_xnnpack) {
  Told said = {0, ""};
  int ends[2];
  if (pipe(ends)) cannot("pipe");
  fflush(stdout);
  pid_t child = fork();
  if (!child) {
    close(ends[0]);
    size_t size;
    void* content = read_all(model, &size);
    if (g_last) content = at_the_end(content, size);
    void* handle = dlopen(library, RTLD_LAZY | RTLD_LOCAL);
    if (!handle) cannot("%s", dlerror());
    g_said = ends[1];
    alarm(60);
    if (dlsym(handle, "LiteRtCreateCompiledModel")) {
      litert_run(handle, content, size, with_xnnpack);
    } else {
      tflite_run(handle, content, size, with_xnnpack);
    }
    cannot("no answer");
  }
  close(ends[1]);
  size_t have = 0;
  ssize_t got;
  while ((got = read(ends[0], said.text + have, sizeof said.text - 1 - have)) > 0) have += (size_t)got;
  close(ends[0]);
  waitpid(child, &said.status, 0);
  if (WIFEXITED(said.status) && WEXITSTATUS(said.status) == 2) exit(2);
  if (WIFSIGNALED(said.status)) {
    snprintf(said.text, sizeof said.text, "the process died of signal %d", WTERMSIG(said.status));
  }
  return said;
}

static int lived(Told of) { return WIFEXITED(of.status) && WEXITSTATUS(of.status) < 2; }
static int refused(Told of) { return lived(of) && WEXITSTATUS(of.status) == kRefused; }

/* Whether these numbers, and no others, stand behind the shape, but for a ten thousandth. */
static int has(const char* text, char** numbers, int count) {
  const char* at = strchr(text, ']');
  for (int i = 0; at && i < count; ++i) {
    char* behind;
    double expected = strtod(numbers[i], NULL), seen = strtod(++at, &behind);
    double most = 1e-4 * (expected < -1 ? -expected : expected > 1 ? expected : 1);
    int near = __builtin_isinf(expected) ? seen == expected : seen - expected <= most && expected - seen <= most;
    if (behind == at || !near) return 0;
    at = behind;
    if (i == count - 1) return !*at;
  }
  return at && !count && !at[1];
}

/* The program begins once more with new memory filled: malloc reads this variable when a process begins. */
static void fill_new_memory(char** words) {
  if (getenv("GLIBC_TUNABLES")) return;
  setenv("GLIBC_TUNABLES", "glibc.malloc.perturb=170:glibc.malloc.tcache_count=0", 1);
  execv("/proc/self/exe", words);
  cannot("execv");
}

int main(int count, char** words) {
  if (count < 3) cannot("two words are needed, LIBRARY and MODEL");
  const char* way = count > 3 ? words[3] : "";
  g_guarded = !strcmp(way, "guarded");
  g_last = !strcmp(way, "last");
  g_reference = !strcmp(way, "reference");
  int has_numbers = g_reference || !strcmp(way, "cpu") || !strcmp(way, "again");
  g_must_run = has_numbers || !strcmp(way, "lives");
  if (!strcmp(way, "again")) g_times = 2;
  if (g_must_run) fill_new_memory(words);
  Told alone = told(words[1], words[2], 0);
  if (!strcmp(way, "lives")) {
    printf("expected: an answer\nseen:     %s\n", alone.text);
    return !lived(alone);
  }
  if (has_numbers) {
    printf(count > 4 ? "expected:" : "expected: no numbers, or a refusal");
    for (int i = 4; i < count; ++i) printf(" %s", words[i]);
    printf("\nseen:     %s\n", alone.text);
    return !(refused(alone) || (lived(alone) && has(alone.text, words + 4, count - 4)));
  }
  if (!lived(alone)) cannot("without XNNPACK: %s", alone.text);
  Told with = told(words[1], words[2], 1);
  if (!strcmp(way, "refused")) {
    printf("expected: a refusal; without XNNPACK: %s\nseen:     %s\n", alone.text, with.text);
    return !(refused(alone) && refused(with));
  }
  printf("expected: %s\nseen:     %s\n", alone.text, with.text);
  return !(refused(alone) ? lived(with) : lived(with) && !strcmp(alone.text, with.text));
}
