/* Scratch directories of tests and benchmarks. */
#ifndef GPT_TESTS_TREE_H
#define GPT_TESTS_TREE_H

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Makes a directory; `path` ends in XXXXXX, and gets its name. Ends the program
 * where it cannot. */
__attribute__((unused)) static void make_tree(char *path)
{
    if (mkdtemp(path))
        return;
    printf("Bail out! no scratch directory %s\n", path);
    exit(1);
}

/* Removes a directory and its contents; ignores errors. */
__attribute__((unused)) static void remove_tree(const char *path)
{
    DIR *dir = opendir(path);
    char name[600];

    for (struct dirent *e; dir && (e = readdir(dir));) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        snprintf(name, sizeof(name), "%s/%s", path, e->d_name);
        if (unlink(name) != 0)
            remove_tree(name);
    }
    if (dir)
        closedir(dir);
    rmdir(path);
}

#endif
