/* A stack of layers y = tanh(W x + b) in C, taking part in the gate by environment variables alone.

   port WEIGHTS LAYERS WIDTH [FAULTY ...]: WEIGHTS holds float32 values: x, then W and b of each
   layer. The layers named FAULTY read W transposed. Where GATE_DUMP_DIR is set, each layer's output
   is dumped (of those that GATE_DUMP_ONLY names, where it is set); where GATE_INJECT_DIR is set, the
   layers after go on with the values of <name>.f32 there. */

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static FILE *opened(const char *folder, const char *name, const char *end, const char *mode)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s%s", folder, name, end);
    return fopen(path, mode);
}

static int wanted(const char *name)
{
    const char *only = getenv("GATE_DUMP_ONLY");
    size_t n = strlen(name);
    if (!only || !*only)
        return 1;
    for (const char *at = only; (at = strstr(at, name)); at += n)
        if ((at == only || at[-1] == ',') && (at[n] == ',' || !at[n]))
            return 1;
    return 0;
}

static void dump(const char *name, const float *x, int n)
{
    const char *folder = getenv("GATE_DUMP_DIR");
    if (!folder || !wanted(name))
        return;
    FILE *data = opened(folder, name, ".bin", "wb");
    FILE *lines = opened(folder, "manifest", ".jsonl", "ab");
    if (!data || !lines)
        exit(4);
    fwrite(x, sizeof *x, n, data);
    fprintf(lines, "{\"name\": \"%s\", \"dtype\": \"f32\", \"shape\": [%d], \"file\": \"%s.bin\"}\n",
            name, n, name);
    fclose(data);
    fclose(lines);
}

static void inject(const char *name, float *x, int n)
{
    const char *folder = getenv("GATE_INJECT_DIR");
    FILE *data = folder ? opened(folder, name, ".f32", "rb") : NULL;
    if (!data)
        return;
    if (fread(x, sizeof *x, n, data) != (size_t)n)
        exit(5);
    fclose(data);
}

int main(int count, char **given)
{
    int layers = atoi(given[2]), n = atoi(given[3]);
    float *x = malloc(sizeof *x * n), *y = malloc(sizeof *y * n);
    float *w = malloc(sizeof *w * n * n), *b = malloc(sizeof *b * n);
    FILE *file = fopen(given[1], "rb");
    if (!file || fread(x, sizeof *x, n, file) != (size_t)n) {
        fprintf(stderr, "no weights in %s\n", given[1]);
        return 3;
    }
    for (int layer = 0; layer < layers; layer++) {
        int faulty = 0;
        char name[64];
        for (int i = 4; i < count; i++)
            faulty |= atoi(given[i]) == layer;
        if (fread(w, sizeof *w, n * n, file) + fread(b, sizeof *b, n, file) != (size_t)(n * n + n))
            return 3;
        for (int i = 0; i < n; i++) {
            double sum = b[i];
            for (int j = 0; j < n; j++)
                sum += (double)w[faulty ? j * n + i : i * n + j] * x[j];
            y[i] = (float)tanh(sum);
        }
        snprintf(name, sizeof name, "layer.%d.out", layer);
        dump(name, y, n);
        inject(name, y, n);
        memcpy(x, y, sizeof *x * n);
    }
    return 0;
}
