# The command line: `docker build -t rabbitdelay .`, then `docker run --rm rabbitdelay --help`.
FROM python:3.12-slim

COPY pyproject.toml README.md LICENSE /source/
COPY rabbitdelay /source/rabbitdelay
RUN pip install --no-cache-dir /source && rm -r /source

RUN useradd --create-home rabbitdelay
USER rabbitdelay
WORKDIR /home/rabbitdelay

ENTRYPOINT ["rabbitdelay"]
CMD ["--help"]
