# A server of short lists on the CPU. docs/guides/deploy.md says how to build and run it.
FROM python:3.11-slim AS build
# Address of PyTorch's builds for the CPU. Without it, pip brings several gigabytes of CUDA libraries.
ARG TORCH_INDEX=""
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
RUN python -m venv /opt/shortlist
RUN /opt/shortlist/bin/pip install ${TORCH_INDEX:+--index-url "$TORCH_INDEX"} 'torch>=2.6,<3'
COPY pyproject.toml README.md LICENSE /source/
COPY src /source/src
RUN /opt/shortlist/bin/pip install '/source[serve]' && /opt/shortlist/bin/pip uninstall --yes pip

FROM python:3.11-slim
RUN useradd --uid 10001 --no-create-home --shell /usr/sbin/nologin shortlist \
    && install --directory --owner shortlist --mode 700 /feedback
COPY --from=build /opt/shortlist /opt/shortlist
ENV PATH=/opt/shortlist/bin:$PATH PYTHONUNBUFFERED=1 MPLCONFIGDIR=/tmp/matplotlib
USER 10001
WORKDIR /tmp
VOLUME /feedback
EXPOSE 8000
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s --retries=3 \
    CMD ["python", "-c", "import urllib.request as web; web.urlopen('http://127.0.0.1:8000/ready', timeout=4)"]
ENTRYPOINT ["shortlist"]
CMD ["serve", "/model", "--host", "0.0.0.0", "--feedback", "/feedback"]
