/* Scratch directories of tests and benchmarks. */
#ifndef GPT_TESTS_TREE_H
#define GPT_TESTS_TREE_H

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Removes a directory and its contents; ignores errors. */
static void remove_tree(const char *path)
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
